//! Settings that are changed while the program runs, as routes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::ALLOW;
use http::{HeaderValue, Method, Request, StatusCode};

use super::Pages;
use super::page::{is_local, render};
use super::query::{Query, Shown};
use crate::access::User;
use crate::http::{Answer, Budget, Handler, text};

/// The longest value, in bytes.
const LONGEST_VALUE: usize = 4096;
/// The longest time for which a value may hold.
const LONGEST_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// A setting of the program, served at `/debug/NAME`: GET shows it, and PUT changes it to the body of the request, with
/// `?for=10m` for that long.
///
/// A PUT is refused unless a filter is in front of the server or the client is local: [`Pages::Public`] opens only GET. The
/// filter of [`access`](crate::access) authorizes it by the verb `put`.
#[derive(Clone)]
pub struct Control {
    name: &'static str,
    show: Show,
    change: Apply,
}

type Show = Arc<dyn Fn(&Query) -> Shown + Send + Sync>;
type Apply = Arc<dyn Fn(Change) -> Result<String, String> + Send + Sync>;

/// A change of a [`Control`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The new value, without white space at its ends.
    pub value: String,
    /// The time after which the former value is in force again; `None` for no end.
    pub lasts: Option<Duration>,
    /// The name of the user, if a filter reviewed it.
    pub user: Option<String>,
}

// === impl Control ===

impl Control {
    /// The setting `name`. `show` returns its content. `change` applies a change and returns the text of the answer, or
    /// the reason for a refusal, which is answered with 400.
    pub fn new(
        name: &'static str,
        show: impl Fn(&Query) -> Shown + Send + Sync + 'static,
        change: impl Fn(Change) -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            show: Arc::new(show),
            change: Arc::new(change),
        }
    }

    /// The route of the setting; none if there are no pages. `filtered`: a filter is in front of it.
    pub(crate) fn route(&self, access: Pages, filtered: bool) -> Option<(String, Handler)> {
        if access == Pages::Off {
            return None;
        }
        let (control, budget) = (self.clone(), Budget::mebibytes(1));
        let handler: Handler = Arc::new(move |request| {
            let (control, budget) = (control.clone(), budget.clone());
            Box::pin(async move {
                if let Some(refused) = refusal(&request, access, filtered) {
                    return refused;
                }
                if *request.method() != Method::PUT {
                    return control.shown(&request);
                }
                let (head, body) = request.into_parts();
                match budget.read(body, LONGEST_VALUE).await {
                    Ok(body) => control.changed(&Request::from_parts(head, ()), &body),
                    Err(error) => refused(&error),
                }
            })
        });
        Some((format!("/debug/{}", self.name), handler))
    }

    fn shown<B>(&self, request: &Request<B>) -> Answer {
        match Query::of(request) {
            Ok(query) => {
                let shown = (self.show)(&query);
                render(self.name, &["", self.name], &query, shown)
            }
            Err(problem) => refused(&problem),
        }
    }

    fn changed(&self, head: &Request<()>, body: &[u8]) -> Answer {
        let changed = change(head, body).and_then(|change| (self.change)(change));
        match changed {
            Ok(answer) => text(StatusCode::OK, answer),
            Err(problem) => refused(&problem),
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.name).finish()
    }
}

/// The answer to a request that is not allowed.
fn refusal<B>(request: &Request<B>, access: Pages, filtered: bool) -> Option<Answer> {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    if !reads && *request.method() != Method::PUT {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n");
        let allowed = HeaderValue::from_static("GET, HEAD, PUT");
        answer.headers_mut().insert(ALLOW, allowed);
        return Some(answer);
    }
    let open = filtered || (access == Pages::Public && reads);
    if open || is_local(request) {
        return None;
    }
    Some(text(
        StatusCode::FORBIDDEN,
        "only local clients may use this path: use kubectl port-forward, or protect the metrics server\n",
    ))
}

fn refused(problem: &impl fmt::Display) -> Answer {
    text(StatusCode::BAD_REQUEST, format!("{problem}\n"))
}

/// The change that a request asks for.
fn change(head: &Request<()>, body: &[u8]) -> Result<Change, String> {
    let value = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8 text".to_owned())?;
    let mut lasts = None;
    let query = head.uri().query().unwrap_or_default();
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "for" => lasts = Some(duration(&text)?),
            _ => return Err(format!("{name}: a PUT has only for, as in ?for=10m")),
        }
    }
    let user = head.extensions().get::<User>();
    Ok(Change {
        value: value.trim().to_owned(),
        lasts,
        user: user.map(|user| user.name.clone()),
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Option<jiff::SignedDuration> = text.parse().ok();
    let parsed = parsed.and_then(|parsed| Duration::try_from(parsed).ok());
    parsed
        .filter(|parsed| !parsed.is_zero() && *parsed <= LONGEST_TIME)
        .ok_or_else(|| format!("for={text}: a time up to 24h, such as 10m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;
    use crate::http::Peer;

    fn request(method: Method, peer: &str, host: &str) -> Request<()> {
        let request = Request::builder().method(method).uri("/debug/log");
        let mut request = request.header(HOST, host).body(()).unwrap();
        request.extensions_mut().insert(Peer(peer.parse().unwrap()));
        request
    }

    #[test]
    fn a_change_is_for_local_clients_and_for_those_that_a_filter_let_in() {
        let (here, there) = ("127.0.0.1:9", "10.0.0.9:9");
        for (method, peer, host, access, filtered, code) in [
            (Method::GET, here, "localhost", Pages::Local, false, None),
            (Method::PUT, here, "localhost", Pages::Local, false, None),
            (
                Method::PUT,
                here,
                "evil.example",
                Pages::Local,
                false,
                Some(403),
            ),
            (
                Method::PUT,
                there,
                "a.example",
                Pages::Local,
                false,
                Some(403),
            ),
            (Method::GET, there, "a.example", Pages::Public, false, None),
            (
                Method::PUT,
                there,
                "a.example",
                Pages::Public,
                false,
                Some(403),
            ),
            (Method::PUT, here, "localhost", Pages::Public, false, None),
            (Method::PUT, there, "a.example", Pages::Local, true, None),
            (
                Method::DELETE,
                here,
                "localhost",
                Pages::Local,
                true,
                Some(405),
            ),
        ] {
            let case = format!("{method} from {peer} to {host}, {access:?}, {filtered}");
            let refused = refusal(&request(method, peer, host), access, filtered);
            let found = refused.map(|answer| answer.status().as_u16());
            assert_eq!(found, code, "{case}");
        }
    }

    #[test]
    fn a_change_has_a_value_a_time_and_the_name_of_its_user() {
        let parsed = |query: &str, body: &[u8]| {
            let uri = format!("/debug/log{query}");
            let mut head = Request::put(uri).body(()).unwrap();
            head.extensions_mut().insert(User::new("ada"));
            change(&head, body)
        };
        for (query, lasts) in [
            ("", None),
            ("?for=10m", Some(600)),
            ("?for=1h30m", Some(5400)),
            ("?for=24h", Some(86_400)),
        ] {
            let change = parsed(query, b" debug\n").unwrap();
            assert_eq!(change.value, "debug");
            assert_eq!(change.lasts, lasts.map(Duration::from_secs), "{query}");
            assert_eq!(change.user.as_deref(), Some("ada"));
        }
        for query in [
            "?for=", "?for=0s", "?for=-1m", "?for=25h", "?for=ten", "?four=1m",
        ] {
            assert!(parsed(query, b"debug").is_err(), "{query}");
        }
        assert!(parsed("", b"\xff").is_err());
    }
}
