//! Debug pages as routes.

use std::fmt;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, StatusCode};

use super::document::{Link, POLICY, document, escaped};
use super::query::{Format, MOST, Query, Shown};
use crate::http::{Answer, Handler, Peer, answer, text};

/// The clients that may get the debug pages of a server without a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// There are no pages, also with a filter.
    Off,
    /// Clients that connect from 127.0.0.1 or ::1 and name such a host: `kubectl port-forward`, or a shell in the Pod.
    #[default]
    Local,
    /// Every client.
    Public,
}

/// A debug page, served at `/debug/NAME`, or at `/debug`.
#[derive(Clone)]
pub struct Page {
    name: &'static str,
    show: Arc<dyn Fn(&Query) -> Shown + Send + Sync>,
}

// === impl Page ===

impl Page {
    /// The page `name`, whose content `show` returns at each request.
    pub fn new(name: &'static str, show: impl Fn(&Query) -> Shown + Send + Sync + 'static) -> Self {
        Self {
            name,
            show: Arc::new(show),
        }
    }

    /// The page of all others, served at `/debug`.
    pub fn overview(show: impl Fn(&Query) -> Shown + Send + Sync + 'static) -> Self {
        Self::new("", show)
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Page").field(&self.name).finish()
    }
}

/// The routes of `pages`. `filtered`: a filter is in front of them.
#[must_use]
pub fn routes(pages: &[Page], access: Pages, filtered: bool) -> Vec<(String, Handler)> {
    if access == Pages::Off {
        return Vec::new();
    }
    let open = filtered || access == Pages::Public;
    let names: Arc<[&'static str]> = pages.iter().map(|page| page.name).collect();
    let route = |page: &Page| {
        let (page, names) = (page.clone(), Arc::clone(&names));
        let path = match page.name {
            "" => "/debug".to_owned(),
            name => format!("/debug/{name}"),
        };
        let handler: Handler = Arc::new(move |request| {
            let answer = respond(&page, &names, open, &request);
            Box::pin(std::future::ready(answer))
        });
        (path, handler)
    };
    pages.iter().map(route).collect()
}

fn respond<B>(page: &Page, names: &[&str], open: bool, request: &Request<B>) -> Answer {
    if *request.method() != Method::GET && *request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n");
    }
    if !open && !is_local(request) {
        return text(
            StatusCode::FORBIDDEN,
            "this page names objects: ask for it by kubectl port-forward, or protect the metrics server\n",
        );
    }
    match Query::of(request) {
        Ok(query) => {
            let shown = (page.show)(&query);
            render(page.name, names, &query, shown)
        }
        Err(problem) => text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
    }
}

pub(super) fn render(name: &str, names: &[&str], query: &Query, shown: Shown) -> Answer {
    let html = |body: &str| {
        let title = if name.is_empty() { "debug" } else { name };
        let page = document(title, &links(name, names, query), query.refresh, body);
        answer(StatusCode::OK, "text/html; charset=utf-8", page)
    };
    let mut page = match shown {
        Shown::Json(document) => answer(
            StatusCode::OK,
            "application/json",
            format!("{document:#}\n"),
        ),
        Shown::Html(body) => html(&body),
        Shown::Text(text) if query.format == Format::Html => {
            html(&format!("<pre>{}</pre>\n", escaped(&text)))
        }
        Shown::Text(shown) => text(StatusCode::OK, shown),
    };
    let headers = page.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    page
}

/// The links of the page `name` to all pages, with the empty name for `/debug`, and to its other formats with the name and the
/// limit of `query`. They are relative, because a proxy may serve the pages below another path.
#[must_use]
pub fn links(name: &str, names: &[&str], query: &Query) -> Vec<Link> {
    let this = if name.is_empty() { "debug" } else { name };
    let mut links: Vec<Link> = names
        .iter()
        .map(|other| {
            let target = match (name, *other) {
                ("", "") => "debug".to_owned(),
                ("", other) => format!("debug/{other}"),
                (_, "") => "../debug".to_owned(),
                (_, other) => other.to_owned(),
            };
            let text = if other.is_empty() { "all" } else { other };
            Link::new(text, target).current(*other == name)
        })
        .collect();
    let with = |name: &str, value: Option<String>| {
        let query = query.with(name, value);
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{this}{mark}{query}")
    };
    let set = |name: &str, value: &str| with(name, Some(value.to_owned()));
    links.push(Link::new("json", set("format", "json")));
    links.push(Link::new("text", set("format", "text")));
    links.push(Link::new("more", set("limit", &MOST.to_string())));
    links.push(match query.refresh {
        None => Link::new("refresh every 5 s", set("refresh", "5")),
        Some(_) => Link::new("stop refreshing", with("refresh", None)),
    });
    links
}

/// Whether the request comes from this machine, and not from a browser that resolved another name to it (DNS rebinding).
pub(super) fn is_local<B>(request: &Request<B>) -> bool {
    let peer = request.extensions().get::<Peer>();
    let named = request.headers().get(HOST);
    let named = named.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    // HTTP/2 has the host beside the path.
    let host = named.as_ref().or_else(|| request.uri().authority());
    peer.is_some_and(|peer| is_loopback(&peer.0.ip().to_string()))
        && host.is_some_and(|host| is_loopback(host.host().trim_matches(['[', ']'])))
}

/// Not the whole of 127/8: the proxies of service meshes connect from there, with the requests of other clients.
fn is_loopback(host: &str) -> bool {
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost"].contains(&host)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    fn body(page: Answer) -> String {
        let body = page.into_body().collect().now_or_never();
        let body = body.unwrap().unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn names_do_not_become_markup() {
        let query = Query::parse("format=html", "").unwrap();
        let text = "<script>alert(1)</script> & more".to_owned();
        let page = render("queues", &["", "queues"], &query, Shown::Text(text));
        let policy = page.headers().get(CONTENT_SECURITY_POLICY).unwrap();
        assert_eq!(policy, POLICY);
        let page = body(page);
        let shown = "<pre>&lt;script&gt;alert(1)&lt;/script&gt; &amp; more</pre>";
        assert!(page.contains(shown), "{page}");
    }

    #[test]
    fn links_are_relative_to_the_page() {
        let query = Query::parse("", "").unwrap();
        let targets = |name| -> Vec<String> {
            let links = links(name, &["", "queues"], &query);
            links
                .iter()
                .take(3)
                .map(|link| link.target().to_owned())
                .collect()
        };
        assert_eq!(targets(""), ["debug", "debug/queues", "debug?format=json"]);
        assert_eq!(
            targets("queues"),
            ["../debug", "queues", "queues?format=json"]
        );
    }

    #[test]
    fn links_to_the_same_page_keep_its_name_and_limit() {
        let targets = |query| -> Vec<String> {
            let query = Query::parse(query, "text/html").unwrap();
            let links = links("queues", &["queues"], &query);
            links[1..]
                .iter()
                .map(|link| link.target().to_owned())
                .collect()
        };
        assert_eq!(
            targets("name=a%26b&limit=7"),
            [
                "queues?format=json&limit=7&name=a%26b",
                "queues?format=text&limit=7&name=a%26b",
                "queues?limit=1000&name=a%26b",
                "queues?limit=7&name=a%26b&refresh=5"
            ]
        );
        let refreshed = targets("refresh=9");
        assert_eq!(refreshed[0], "queues?format=json");
        assert_eq!(refreshed[2..], ["queues?limit=1000&refresh=9", "queues"]);
    }

    #[test]
    fn the_overview_is_served_at_debug() {
        let shown = |_: &Query| Shown::Text("all\n".into());
        let pages = [Page::overview(shown), Page::new("queues", shown)];
        let routes = routes(&pages, Pages::Local, false);
        let paths: Vec<&str> = routes.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["/debug", "/debug/queues"]);
    }

    #[test]
    fn a_page_without_a_filter_is_for_this_machine_under_its_own_names() {
        let page = Page::new("queues", |query| {
            query.show("queues", &[query.limit], || "none\n".into())
        });
        for (peer, host, open, code) in [
            ("127.0.0.1:9", "localhost:8080", false, 200),
            ("[::1]:9", "[::1]", false, 200),
            ("127.0.0.1:9", "evil.example.com", false, 403),
            ("127.0.0.6:9", "localhost", false, 403),
            ("10.0.0.9:9", "localhost", false, 403),
            ("10.0.0.9:9", "metrics.example.com", true, 200),
        ] {
            let mut request = Request::get("/debug/queues").header(HOST, host);
            let extensions = request.extensions_mut().unwrap();
            extensions.insert(Peer(peer.parse().unwrap()));
            let answer = respond(&page, &["queues"], open, &request.body(()).unwrap());
            assert_eq!(answer.status().as_u16(), code, "{peer} {host} {open}");
        }
    }
}
