//! The operator's `list` engine over HTTP.
//!
//! | request | |
//! |---|---|
//! | `GET URL?format=json` | all entries |
//! | with `If-None-Match` and `&wait=` | answered when the version changes, or by 304 after the wait |
//! | with `&since=` | only what changed, where the operator still has that version |
//! | with `X-IPBlock-Agent` and `X-IPBlock-Agent-Report` | each of them: the state of this node |

use std::error::Error as StdError;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, DATE, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::Instant;
use url::Url;

use crate::list::{self, Answer, Ask, Received, Report};

/// The largest token, certificate file, and text of an error.
const LARGEST_FILE: u64 = 1 << 20;
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take beside the wait that was requested.
const TRANSFER: Duration = Duration::from_secs(30);
/// The name of this node, and its report in JSON: headers of each request. A report counts at the replica that the agent
/// polls.
const AGENT: HeaderName = HeaderName::from_static("x-ipblock-agent");
const AGENT_REPORT: HeaderName = HeaderName::from_static("x-ipblock-agent-report");
/// The longest text of an error in a report, in characters.
const LONGEST_ERROR: usize = 500;

/// Why the operator's list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer.
    #[error("cannot reach the operator: {0}")]
    Connect(String),
    /// No answer in time.
    #[error("the operator did not answer within {0:?}")]
    Timeout(Duration),
    /// The token is missing or refused.
    #[error("{0}")]
    Credentials(String),
    /// Another status than 200 and 304.
    #[error("the operator answered {0}")]
    Status(StatusCode),
    /// More bytes than [`HttpSettings::largest`].
    #[error("the list is larger than {0} bytes; raise --max-entries, and the limit of memory")]
    TooLarge(usize),
    /// Not a list.
    #[error(transparent)]
    List(#[from] list::Error),
}

/// Where the list comes from.
pub trait Source: Send + Sync + 'static {
    /// Requests the list, and sends the state of this node. An `ask` with a version is answered when the version changes,
    /// or after the wait.
    fn fetch(
        &self,
        ask: Ask,
        report: Option<Report>,
    ) -> BoxFuture<'static, Result<Received, Error>>;

    /// The addresses of the operator's endpoint, as far as its name resolves.
    fn addresses(&self) -> BoxFuture<'static, Vec<IpAddr>>;
}

/// The settings of [`Http`].
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The URL of the list.
    pub url: Url,
    /// A file with a bearer token, which is read for each request.
    pub token_file: Option<PathBuf>,
    /// A PEM file with the certificate authorities of the operator; it is read again when it changes. Without it those of
    /// the system are trusted.
    pub authority_file: Option<PathBuf>,
    /// Whether the token is sent over plain HTTP to addresses that are not loopback.
    pub token_over_http: bool,
    /// How long the operator may wait for a change.
    pub wait: Duration,
    /// The name of this node in reports.
    pub node: String,
    /// The largest answer, in bytes. An entry has at most about 80.
    pub largest: usize,
}

/// The list over HTTP. Clones share connections.
#[derive(Clone, Debug)]
pub struct Http {
    settings: Arc<HttpSettings>,
    client: Arc<Mutex<Option<(Stamp, reqwest::Client)>>>,
}

/// The authorities' file when it was read: time of change and length.
type Stamp = Option<(Option<SystemTime>, u64)>;

// === impl Error ===

impl Error {
    /// A name for metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Timeout(_) => "timeout",
            Self::Credentials(_) => "credentials",
            Self::Status(_) => "status",
            Self::TooLarge(_) | Self::List(_) => "list",
        }
    }
}

// === impl Http ===

impl Http {
    /// A source with these settings.
    ///
    /// # Errors
    /// When the URL is not one of HTTP, or a token would be sent in plain text.
    pub fn new(settings: HttpSettings) -> Result<Self, String> {
        let url = &settings.url;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(format!("{url} is not a URL with http:// or https://"));
        }
        let loopback = match url.host() {
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        };
        let plain = url.scheme() == "http" && !loopback;
        if plain && settings.token_file.is_some() && !settings.token_over_http {
            return Err(format!(
                "{url} would send the token in plain text; use https://, or --allow-bearer-over-http"
            ));
        }
        Ok(Self {
            settings: Arc::new(settings),
            client: Arc::default(),
        })
    }

    /// The client, made again when the authorities' file has changed.
    fn client(&self) -> Result<reqwest::Client, Error> {
        let file = self.settings.authority_file.as_deref();
        let stamp = file.and_then(stamp);
        let mut kept = self.client.lock();
        if let Some((known, client)) = &*kept
            && *known == stamp
        {
            return Ok(client.clone());
        }
        let made = file
            .map(|file| read_file(file).map_err(|error| format!("{}: {error}", file.display())))
            .transpose()
            .and_then(|pem| tls_config(pem.as_deref()))
            .and_then(|tls| {
                reqwest::Client::builder()
                    .tls_backend_preconfigured(tls)
                    .connect_timeout(CONNECT)
                    .redirect(reqwest::redirect::Policy::none())
                    .no_proxy()
                    .referer(false)
                    .retry(reqwest::retry::never())
                    .tcp_keepalive(Duration::from_secs(15))
                    .build()
                    .map_err(|error| error.to_string())
            });
        match (made, &*kept) {
            (Ok(client), _) => {
                *kept = Some((stamp, client.clone()));
                Ok(client)
            }
            // A file that is being replaced: the one before is still good.
            (Err(error), Some((_, client))) => {
                tracing::warn!(
                    error,
                    "cannot read the certificate authorities; the previous ones are used"
                );
                Ok(client.clone())
            }
            (Err(error), None) => Err(Error::Credentials(error)),
        }
    }

    fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("ipblock-agent/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(file) = &self.settings.token_file {
            let wrong = |error: String| Error::Credentials(format!("{}: {error}", file.display()));
            let token = read_file(file).map_err(|error| wrong(error.to_string()))?;
            let token = String::from_utf8_lossy(&token);
            // A second line is the next token of a rotation, which servers accept beside the first.
            let token = token.lines().next().unwrap_or_default().trim();
            if token.is_empty() {
                return Err(wrong("the file is empty".into()));
            }
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| wrong("the token has characters that a header cannot have".into()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    async fn get(self, ask: Ask, report: Option<Report>) -> Result<Received, Error> {
        let mut url = self.settings.url.clone();
        let mut headers = self.headers()?;
        if let Some(report) = report {
            add_report(&mut headers, &self.settings.node, report);
        }
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("format", "json");
            if let Some(version) = &ask.version {
                query.append_pair("wait", &self.settings.wait.as_secs().to_string());
                if ask.changes {
                    query.append_pair("since", version);
                }
                let tag = HeaderValue::try_from(format!("\"{version}\""))
                    .map_err(|_| list::Error::Format("the version is no ETag".into()))?;
                headers.insert(IF_NONE_MATCH, tag);
            }
        }
        let mut response = self
            .client()?
            .get(url)
            .headers(headers)
            .send()
            .await
            .map_err(connect)?;
        let (date, heard) = (response.headers().get(DATE).and_then(date), Instant::now());
        let answer = match response.status() {
            StatusCode::OK => {
                let mut body = Vec::new();
                while let Some(chunk) = response.chunk().await.map_err(connect)? {
                    if body.len() + chunk.len() > self.settings.largest {
                        return Err(Error::TooLarge(self.settings.largest));
                    }
                    body.extend_from_slice(&chunk);
                }
                Answer::parse(&body)?
            }
            StatusCode::NOT_MODIFIED if ask.version.is_some() => Answer::Unchanged,
            status => return Err(refused(status)),
        };
        // The body may have come slowly.
        let passed = SignedDuration::try_from(heard.elapsed()).unwrap_or(SignedDuration::ZERO);
        let date = date.and_then(|date| date.checked_add(passed).ok());
        Ok(Received { answer, date })
    }
}

impl Source for Http {
    fn fetch(
        &self,
        ask: Ask,
        report: Option<Report>,
    ) -> BoxFuture<'static, Result<Received, Error>> {
        let wait = ask
            .version
            .as_ref()
            .map_or(Duration::ZERO, |_| self.settings.wait);
        let limit = wait + TRANSFER;
        let request = self.clone().get(ask, report);
        Box::pin(async move {
            match tokio::time::timeout(limit, request).await {
                Ok(result) => result,
                Err(_) => Err(Error::Timeout(limit)),
            }
        })
    }

    fn addresses(&self) -> BoxFuture<'static, Vec<IpAddr>> {
        let host = self.settings.url.host().map(|host| host.to_owned());
        let port = self.settings.url.port_or_known_default().unwrap_or(443);
        Box::pin(async move {
            match host {
                Some(url::Host::Ipv4(address)) => vec![address.into()],
                Some(url::Host::Ipv6(address)) => vec![address.into()],
                Some(url::Host::Domain(name)) => {
                    let lookup = tokio::net::lookup_host((name, port));
                    match tokio::time::timeout(CONNECT, lookup).await {
                        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
                        _ => Vec::new(),
                    }
                }
                None => Vec::new(),
            }
        })
    }
}

/// Adds the report of `node` to the headers of a request, with at most [`LONGEST_ERROR`] characters of its error.
fn add_report(headers: &mut HeaderMap, node: &str, mut report: Report) {
    if let Some(error) = &mut report.error {
        *error = error.chars().take(LONGEST_ERROR).collect();
    }
    let report = serde_json::to_vec(&report).ok();
    let report = report.and_then(|report| HeaderValue::try_from(report).ok());
    if let (Ok(node), Some(report)) = (HeaderValue::try_from(node), report) {
        headers.insert(AGENT, node);
        headers.insert(AGENT_REPORT, report);
    }
}

fn refused(status: StatusCode) -> Error {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Error::Credentials(format!("the operator refused the token: {status}"))
        }
        status => Error::Status(status),
    }
}

/// The innermost cause, without the URL.
fn connect(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut cause: &dyn StdError = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    Error::Connect(cause.to_string())
}

/// `Date` of HTTP, which is the format of RFC 2822 with the zone GMT.
fn date(value: &HeaderValue) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new()
        .parse_timestamp(value.to_str().ok()?)
        .ok()
}

fn stamp(file: &Path) -> Stamp {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok(), metadata.len()))
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut content = Vec::new();
    std::fs::File::open(path)?
        .take(LARGEST_FILE)
        .read_to_end(&mut content)?;
    Ok(content)
}

fn tls_config(authority_pem: Option<&[u8]>) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(pem) = authority_pem {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("the file of certificate authorities has no certificate".into());
        }
    } else {
        // An image without certificates still reads a list over plain HTTP.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> HttpSettings {
        HttpSettings {
            url: url.parse().unwrap(),
            token_file: Some("/token".into()),
            authority_file: None,
            token_over_http: false,
            wait: Duration::from_secs(30),
            node: "node".into(),
            largest: 1 << 20,
        }
    }

    #[test]
    fn a_token_is_not_sent_in_plain_text_unless_a_flag_allows_it() {
        for (url, allowed) in [
            ("https://operator:8093/bans", true),
            ("http://127.0.0.1:8093/bans", true),
            ("http://[::1]:8093/bans", true),
            ("http://localhost:8093/bans", true),
            ("http://operator:8093/bans", false),
            ("http://192.0.2.1/bans", false),
            ("ftp://operator/bans", false),
        ] {
            assert_eq!(Http::new(settings(url)).is_ok(), allowed, "{url}");
        }
        let mut plain = settings("http://operator:8093/bans");
        plain.token_over_http = true;
        assert!(Http::new(plain).is_ok());
    }

    #[test]
    fn a_report_is_a_header_however_long_its_error_is() {
        let mut headers = HeaderMap::new();
        let report = Report {
            version: "v7".into(),
            count: 2,
            error: Some("x\n\u{e9}".repeat(5000)),
        };
        add_report(&mut headers, "node", report);
        assert_eq!(headers[AGENT], "node");
        let sent = headers[AGENT_REPORT].as_bytes();
        assert!(sent.len() < 4096);
        let sent: serde_json::Value = serde_json::from_slice(sent).unwrap();
        assert_eq!(
            (&sent["version"], &sent["count"]),
            (&"v7".into(), &2.into())
        );
    }

    #[test]
    fn the_date_of_http_is_read() {
        let read = date(&HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(read, Some("1994-11-06T08:49:37Z".parse().unwrap()));
        assert_eq!(date(&HeaderValue::from_static("yesterday")), None);
    }

    #[tokio::test]
    async fn a_missing_or_empty_token_file_is_an_error_of_credentials() {
        let directory = std::env::temp_dir().join(format!("ipblock-agent-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut settings = settings("https://127.0.0.1:1/bans");
        let file = directory.join("token");
        settings.token_file = Some(file.clone());
        let source = Http::new(settings).unwrap();
        let error = source.fetch(Ask::default(), None).await.unwrap_err();
        assert_eq!(error.kind(), "credentials", "{error}");
        std::fs::write(&file, "\n").unwrap();
        let error = source.fetch(Ask::default(), None).await.unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
        std::fs::write(&file, "first\nsecond\n").unwrap();
        assert_eq!(source.headers().unwrap()[AUTHORIZATION], "Bearer first");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
