//! A client of the API: signed calls, typed answers, and errors that say whether a call may be sent again.
//!
//! A [`Client`] sends each call once. Retries belong to the caller, which knows whether its call can be repeated: with a client token,
//! or because the call sets a value.

mod answers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use reeve_clock::Clock;
use serde::de::DeserializeOwned;

pub use answers::{
    AccessEntry, AccessList, Attributes, BackendServer, Created, Group, GroupSummary, Listener,
    Summary, TagResource,
};

use crate::cloud::VERSION;
use crate::parameters::Parameters;
use crate::signature::{self, Canonical, Method};

/// The time-out of a call, unless another is set.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 8 << 20;

/// Where the API is, and the key for it.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    endpoint: String,
    host: String,
    access_key: String,
    secret: String,
    region: String,
    signing: Signing,
    clock: Clock,
    timeout: Duration,
    turns: Option<Arc<dyn Turns>>,
}

/// A boxed error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The turns of the requests of a client: see [`Client::turns`].
pub trait Turns: std::fmt::Debug + Send + Sync + 'static {
    /// Waits until a request of `action` may be sent.
    ///
    /// # Errors
    /// If it must not be sent.
    fn take<'a>(&'a self, action: &'a str) -> BoxFuture<'a, Result<(), BoxError>>;

    /// A request that was sent has ended.
    fn ended(&self, error: Option<&Error>);
}

/// The signature that a client uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// `ACS3-HMAC-SHA256`, in the headers.
    #[default]
    Acs3,
    /// Version 1.0 with `HMAC-SHA1`, in the parameters.
    Version1,
}

/// The reason why a call has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cloud refused the call: it had no effect.
    #[error("{action} was refused: {code}: {message} (request {request_id})")]
    Refused {
        /// The action.
        action: String,
        /// The status of the answer.
        status: u16,
        /// The code of the error body.
        code: String,
        /// The message of the error body.
        message: String,
        /// The id of the request, for the vendor's support.
        request_id: String,
    },
    /// The request was not sent: [`Turns::take`] refused it.
    #[error("{action} is not sent: {source}")]
    NotSent {
        /// The action.
        action: String,
        /// The reason.
        source: BoxError,
    },
    /// No answer came: the call may have had its effect.
    #[error("{action} has no answer: {source}")]
    Lost {
        /// The action.
        action: String,
        /// What went wrong.
        source: reqwest::Error,
    },
    /// The answer is not what the API documents.
    #[error("the answer to {action} cannot be read: {reason}")]
    Unreadable {
        /// The action.
        action: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A signed request is sent once, and to its endpoint.
fn builder() -> reqwest::ClientBuilder {
    let redirects = reqwest::redirect::Policy::none();
    reqwest::Client::builder().no_proxy().redirect(redirects)
}

// === impl Client ===

impl Client {
    /// A client of the API at `endpoint`, such as `http://127.0.0.1:7001` or `https://slb.example.com`, with an access key. The
    /// certificate of the endpoint is verified with the authorities of the system, unless [`Client::ca_file`] names others.
    ///
    /// # Errors
    /// When the endpoint is not a URL with a host, or no HTTP client can be made.
    pub fn new(
        endpoint: &str,
        access_key: &str,
        secret: &str,
        region: &str,
        clock: Clock,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        // A program that has selected another provider of cryptography keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = reqwest::Url::parse(endpoint)?;
        let host = url.host_str().ok_or("the endpoint has no host")?;
        let host = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Ok(Self {
            http: builder().build()?,
            endpoint: format!("{}://{host}/", url.scheme()),
            host,
            access_key: access_key.to_owned(),
            secret: secret.to_owned(),
            region: region.to_owned(),
            signing: Signing::default(),
            clock,
            timeout: TIMEOUT,
            turns: None,
        })
    }

    /// Trusts only the authorities in a PEM file, for an endpoint with `https`.
    ///
    /// # Errors
    /// When the file cannot be read, or has no certificate. The error names it.
    pub fn ca_file(
        mut self,
        file: &Path,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let named = |text: String| format!("the authorities in {}: {text}", file.display());
        let pem = std::fs::read(file).map_err(|error| named(error.to_string()))?;
        let authorities = reqwest::Certificate::from_pem_bundle(&pem);
        let authorities = authorities.map_err(|error| named(error.to_string()))?;
        if authorities.is_empty() {
            return Err(named("there is no certificate".to_owned()).into());
        }
        self.http = builder().tls_certs_only(authorities).build()?;
        Ok(self)
    }

    /// Takes a turn before each request, also of a call that sends several. By default requests do not wait.
    #[must_use]
    pub fn turns(mut self, turns: Arc<dyn Turns>) -> Self {
        self.turns = Some(turns);
        self
    }

    /// Signs with `signing`. Default: [`Signing::Acs3`].
    #[must_use]
    pub fn signing(mut self, signing: Signing) -> Self {
        self.signing = signing;
        self
    }

    /// Gives up a call after `timeout`. Default: 10 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The region that calls name.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Sends a call once.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn call<T: DeserializeOwned>(&self, call: Parameters) -> Result<T, Error> {
        let action = call.text("Action").unwrap_or_default().to_owned();
        let Some(turns) = &self.turns else {
            return self.send(action, call).await;
        };
        if let Err(source) = turns.take(&action).await {
            return Err(Error::NotSent { action, source });
        }
        let result = self.send(action, call).await;
        turns.ended(result.as_ref().err());
        result
    }

    async fn send<T: DeserializeOwned>(
        &self,
        action: String,
        call: Parameters,
    ) -> Result<T, Error> {
        let lost = |source| Error::Lost {
            action: action.clone(),
            source,
        };
        let request = self.request(call.with("RegionId", &self.region));
        let mut answer = request.timeout(self.timeout).send().await.map_err(lost)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                let reason = format!("it is longer than {LONGEST_ANSWER} bytes");
                return Err(Error::Unreadable { action, reason });
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| Error::Unreadable {
                action,
                reason: error.to_string(),
            });
        }
        match serde_json::from_slice::<answers::Refused>(&body) {
            Ok(refused) => Err(Error::Refused {
                action,
                status: status.as_u16(),
                code: refused.code,
                message: refused.message,
                request_id: refused.request_id,
            }),
            Err(error) => Err(Error::Unreadable {
                action,
                reason: format!("status {status}: {error}"),
            }),
        }
    }

    fn request(&self, call: Parameters) -> reqwest::RequestBuilder {
        let random = self.clock.random();
        let nonce = format!("{:016x}{:016x}", random.next_u64(), random.next_u64());
        let time = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        match self.signing {
            Signing::Version1 => self.version_1(call, &nonce, &time),
            Signing::Acs3 => self.acs3(&call, &nonce, &time),
        }
    }

    fn version_1(&self, call: Parameters, nonce: &str, time: &str) -> reqwest::RequestBuilder {
        let mut call = call
            .with("Version", VERSION)
            .with("Format", "JSON")
            .with("AccessKeyId", &self.access_key)
            .with("SignatureMethod", "HMAC-SHA1")
            .with("SignatureVersion", "1.0")
            .with("SignatureNonce", nonce)
            .with("Timestamp", time);
        let signature = signature::sign(Method::HmacSha1, "POST", call.all(), &self.secret);
        call.set("Signature", signature);
        self.http
            .post(&self.endpoint)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(signature::canonical_query(call.all()))
    }

    fn acs3(&self, call: &Parameters, nonce: &str, time: &str) -> reqwest::RequestBuilder {
        let mut form = call.all().clone();
        let action = form.remove("Action").unwrap_or_default();
        let body = signature::canonical_query(&form);
        let payload = signature::sha256_hex(body.as_bytes());
        let headers: BTreeMap<String, String> = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("host", &self.host),
            ("x-acs-action", &action),
            ("x-acs-content-sha256", &payload),
            ("x-acs-date", time),
            ("x-acs-signature-nonce", nonce),
            ("x-acs-version", VERSION),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        let canonical = Canonical {
            method: "POST",
            path: "/",
            query: &BTreeMap::new(),
            headers: &headers,
            payload: &payload,
        };
        let authorization = canonical.authorization(&self.access_key, &self.secret);
        let mut request = self.http.post(&self.endpoint).body(body);
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        request.header("authorization", authorization)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .field("access_key", &self.access_key)
            .field("signing", &self.signing)
            .finish_non_exhaustive()
    }
}

// === impl Error ===

impl Error {
    /// The code of the refusal.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Whether the object of the call does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        let Self::Refused { code, message, .. } = self else {
            return false;
        };
        // The key of the account is no object of a call.
        if code.starts_with("InvalidAccessKeyId") {
            return false;
        }
        // Listeners and server groups have no code of their own.
        code.ends_with(".NotFound")
            || code == "AclNotExist"
            || (code == "InvalidParameter" && message.ends_with("does not exist."))
    }

    /// Whether the account sent too many calls.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.code()
            .is_some_and(|code| code.starts_with("Throttling"))
    }

    /// Whether the object is being configured, so that the call may succeed later.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(
            self.code(),
            Some(
                "ServiceIsConfiguring"
                    | "BackendServer.configuring"
                    | "OperationFailed.ListenerStatusNotSupport"
            )
        )
    }

    /// Whether the cloud failed, rather than refuse.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Refused { status: 500.., .. })
    }

    /// Whether the call may have had its effect.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        !matches!(
            self,
            Self::Refused { status: ..500, .. } | Self::NotSent { .. }
        )
    }
}
