//! Calls of the Query API: a form as the body, signed headers, an answer in XML.
//!
//! A [`Client`] sends each call once. Retries belong to the controller.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use reeve_clock::Clock;

use super::keys::Source;
use super::signature::{Request, Scope};
use super::wire;
use super::xml::{self, Element};
use crate::model::Tags;
use crate::provider::{Error, Kind, Turns};

/// The version of the API.
const VERSION: &str = "2015-12-01";
/// The service in the scope of a signature.
const SERVICE: &str = "elasticloadbalancing";
const FORM: &str = "application/x-www-form-urlencoded";
/// The time-out of a call.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 8 << 20;

/// An action and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    action: &'static str,
    parameters: Vec<(String, String)>,
}

/// Where the API is, and the keys for it.
pub(super) struct Client {
    http: reqwest::Client,
    url: reqwest::Url,
    host: String,
    region: String,
    keys: Source,
    clock: Clock,
    /// The turns of the requests, once there are any.
    turns: RwLock<Option<Arc<dyn Turns>>>,
}

// === impl Call ===

impl Call {
    pub(super) fn new(action: &'static str) -> Self {
        Self {
            action,
            parameters: Vec::new(),
        }
    }

    /// Sets a parameter.
    pub(super) fn with(mut self, name: impl Into<String>, value: impl Display) -> Self {
        self.parameters.push((name.into(), value.to_string()));
        self
    }

    /// Sets the list `name`: its items are counted from one.
    pub(super) fn with_all<T: Display>(
        self,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        let numbered = values.into_iter().zip(1..);
        numbered.fold(self, |call, (value, number): (_, usize)| {
            call.with(format!("{name}.member.{number}"), value)
        })
    }

    /// Sets a list of pairs with these names of the parts.
    pub(super) fn with_pairs<A: Display, B: Display>(
        self,
        name: &str,
        parts: (&str, &str),
        pairs: impl IntoIterator<Item = (A, B)>,
    ) -> Self {
        let numbered = pairs.into_iter().zip(1..);
        numbered.fold(self, |call, ((first, second), number): (_, usize)| {
            call.with(format!("{name}.member.{number}.{}", parts.0), first)
                .with(format!("{name}.member.{number}.{}", parts.1), second)
        })
    }

    pub(super) fn with_tags(self, tags: &Tags) -> Self {
        self.with_pairs("Tags", ("Key", "Value"), tags)
    }

    pub(super) fn with_attributes(self, attributes: &[(&str, String)]) -> Self {
        let pairs = attributes.iter().map(|(key, value)| (key, value));
        self.with_pairs("Attributes", ("Key", "Value"), pairs)
    }

    /// Whether it changes the cloud.
    fn changes(&self) -> bool {
        !self.action.starts_with("Describe")
    }

    /// Whether it has no parameters.
    pub(super) fn is_plain(&self) -> bool {
        self.parameters.is_empty()
    }

    /// The body.
    pub(super) fn form(&self) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", self.action);
        form.append_pair("Version", VERSION);
        form.extend_pairs(&self.parameters);
        form.finish()
    }
}

// === impl Client ===

impl Client {
    /// A client of the API at `endpoint`, such as `https://elasticloadbalancing.eu-west-1.amazonaws.com`, that trusts the
    /// authorities of the machine, or only those of the PEM text `authorities`.
    pub(super) fn new(
        endpoint: &str,
        region: &str,
        keys: Source,
        authorities: Option<&[u8]>,
        clock: Clock,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        // A program that has selected another provider of cryptography keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut url = reqwest::Url::parse(endpoint)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("{endpoint} is neither http:// nor https://").into());
        }
        url.set_path("/");
        url.set_query(None);
        url.set_fragment(None);
        let host = url.host_str().ok_or("the endpoint has no host")?;
        let host = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        if let Some(pem) = authorities {
            let all = reqwest::Certificate::from_pem_bundle(pem)?;
            if all.is_empty() {
                return Err("the file of authorities has no certificate".into());
            }
            http = http.tls_certs_only(all);
        }
        Ok(Self {
            http: http.build()?,
            url,
            host,
            region: region.to_owned(),
            keys,
            clock,
            turns: RwLock::default(),
        })
    }

    /// Takes a turn for each request from now on.
    pub(super) fn take_turns(&self, turns: Arc<dyn Turns>) {
        *self.turns.write() = Some(turns);
    }

    /// Sends a call once, and reads its result.
    pub(super) async fn call<T>(
        &self,
        call: Call,
        read: impl FnOnce(Element<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let text = self.send(&call).await?;
        xml::read(&text, |root| read(root.result()?))
    }

    /// Sends a call whose answer has nothing of interest.
    pub(super) async fn run(&self, call: Call) -> Result<(), Error> {
        self.send(&call).await.map(drop)
    }

    async fn send(&self, call: &Call) -> Result<String, Error> {
        let turns = self.turns.read().clone();
        let Some(turns) = turns else {
            return self.send_now(call).await;
        };
        turns.take(call.changes()).await?;
        let answer = self.send_now(call).await;
        match &answer {
            Err(error) if error.kind == Kind::Throttled => turns.throttled(error.retry_after),
            _ => turns.accepted(),
        }
        answer
    }

    async fn send_now(&self, call: &Call) -> Result<String, Error> {
        let action = call.action;
        let lost = |error: reqwest::Error| {
            // The causes say more than the error itself: a refused connection, a certificate.
            let mut message = format!("{action} has no answer: {error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                message.push_str(&format!(": {error}"));
                cause = error.source();
            }
            Error::new(Kind::Unavailable, "NoAnswer", message)
        };
        let request = self.request(call).await?;
        let mut answer = request.send().await.map_err(lost)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                let reason = format!("it is longer than {LONGEST_ANSWER} bytes");
                return Err(wire::unreadable("answer", reason));
            }
            body.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(body).map_err(|error| wire::unreadable("answer", error))?;
        if status.is_success() {
            Ok(text)
        } else {
            Err(wire::refusal(status.as_u16(), &text))
        }
    }

    async fn request(&self, call: &Call) -> Result<reqwest::RequestBuilder, Error> {
        let keys = self.keys.keys().await;
        let keys = keys.map_err(|error| Error::new(Kind::Denied, "NoKeys", error.to_string()))?;
        let time = self.clock.now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let body = call.form();
        let mut headers = vec![
            ("content-type", FORM),
            ("host", &self.host),
            ("x-amz-date", &time),
        ];
        if let Some(token) = &keys.token {
            headers.push(("x-amz-security-token", token));
        }
        let request = Request {
            method: "POST",
            path: "/",
            query: "",
            headers: &headers,
            payload: body.as_bytes(),
        };
        let scope = Scope {
            time: &time,
            region: &self.region,
            service: SERVICE,
        };
        let authorization = request.authorization(scope, &keys);
        let mut request = self.http.post(self.url.clone()).timeout(TIMEOUT);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        Ok(request.header("authorization", authorization).body(body))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.url.as_str())
            .field("region", &self.region)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::provider::Answer;

    #[test]
    fn a_call_is_a_form_with_numbered_lists() {
        let tags = Tags::from([
            ("a".to_owned(), "1 & 2".to_owned()),
            ("b".to_owned(), String::new()),
        ]);
        let call = Call::new("CreateLoadBalancer")
            .with("Name", "web")
            .with_all("Subnets", ["subnet-1", "subnet-2"])
            .with_tags(&tags);
        assert_eq!(
            call.form(),
            "Action=CreateLoadBalancer&Version=2015-12-01&Name=web&Subnets.member.1=subnet-1&\
             Subnets.member.2=subnet-2&Tags.member.1.Key=a&Tags.member.1.Value=1+%26+2&\
             Tags.member.2.Key=b&Tags.member.2.Value="
        );
        let empty = Call::new("DescribeTags").with_all("ResourceArns", [] as [&str; 0]);
        assert_eq!(empty, Call::new("DescribeTags"));
    }

    #[test]
    fn an_endpoint_is_a_url_of_http() {
        let client = |endpoint: &str| {
            let keys = Source::File("/nowhere".into());
            Client::new(endpoint, "eu-west-1", keys, None, Clock::system())
                .map(|client| client.host)
        };
        assert_eq!(client("http://127.0.0.1:5000").unwrap(), "127.0.0.1:5000");
        assert_eq!(client("https://elb.example/x?y#z").unwrap(), "elb.example");
        for wrong in ["", "elb.example", "ftp://elb.example", "unix:/run/elb"] {
            assert!(client(wrong).is_err(), "{wrong}");
        }
        let keys = Source::File("/nowhere".into());
        let none = Client::new("https://elb.example", "r", keys, Some(b""), Clock::system());
        assert!(none.unwrap_err().to_string().contains("no certificate"));
    }

    /// Refuses the turns of changes, and counts what ended.
    #[derive(Debug, Default)]
    struct ReadsOnly(AtomicUsize);

    impl Turns for ReadsOnly {
        fn take(&self, changes: bool) -> Answer<'_, ()> {
            let refused = Error::new(Kind::Unavailable, "NotNow", "no turn");
            Box::pin(async move { if changes { Err(refused) } else { Ok(()) } })
        }

        fn accepted(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn throttled(&self, _: Option<Duration>) {}
    }

    #[tokio::test]
    async fn a_request_takes_a_turn_and_a_change_without_one_is_not_sent() {
        let keys = Source::File("/nowhere/keys".into());
        let client = Client::new("http://127.0.0.1:1", "r", keys, None, Clock::system()).unwrap();
        let turns = Arc::<ReadsOnly>::default();
        client.take_turns(Arc::<ReadsOnly>::clone(&turns));
        let code = async |action| client.run(Call::new(action)).await.unwrap_err().code;
        assert_eq!(code("AddTags").await, "NotNow");
        assert_eq!(turns.0.load(Ordering::Relaxed), 0);
        assert_eq!(code("DescribeTags").await, "NoKeys");
        assert_eq!(turns.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_call_without_keys_is_not_sent() {
        let keys = Source::File("/nowhere/keys".into());
        let client = Client::new("http://127.0.0.1:1", "r", keys, None, Clock::system()).unwrap();
        let error = client.run(Call::new("DescribeTags")).await.unwrap_err();
        assert_eq!((error.kind, error.code.as_str()), (Kind::Denied, "NoKeys"));
        assert!(error.message.starts_with("/nowhere/keys"), "{error}");
    }
}
