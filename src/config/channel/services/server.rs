//! The server of a service, with a certificate of its own, and the parts that checkers share.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use reeve_serve::certificates::Certificates;
use serde_json::Value;
use sha2::Sha256;

use crate::inbound::{self, Running};

/// What a service answers: a success, or why it refuses.
pub(super) type Checked = Result<Reply, Reply>;

/// The documented rules of a service.
pub(super) type Checker = fn(&Posted) -> Checked;

/// An answer.
pub(super) struct Reply {
    status: StatusCode,
    kind: &'static str,
    body: String,
}

/// A request.
pub(super) struct Posted {
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// A running server.
pub(super) struct Service {
    /// `https://127.0.0.1:…`
    pub(super) url: String,
    /// The certificate of the authority.
    pub(super) authority: String,
    accepted: Arc<Mutex<Vec<Vec<u8>>>>,
    _running: Running,
}

// === impl Service ===

impl Service {
    pub(super) fn start(check: Checker) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let private = key.serialize_der().try_into().unwrap();
        let pair = Certificates::from_der(vec![certificate.der().clone()], private).unwrap();
        let accepted = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&accepted);
        let handler = move |request: inbound::Request| {
            let record = Arc::clone(&record);
            async move {
                let (head, body) = request.into_parts();
                let Ok(body) = body.collect().await else {
                    return inbound::hang_up();
                };
                if head.method != http::Method::POST {
                    return inbound::text(StatusCode::METHOD_NOT_ALLOWED, "POST is expected");
                }
                let query = head.uri.query().unwrap_or_default().as_bytes();
                let posted = Posted {
                    path: head.uri.path().to_owned(),
                    query: url::form_urlencoded::parse(query).into_owned().collect(),
                    headers: head.headers,
                    body: body.to_bytes().to_vec(),
                };
                let reply = match check(&posted) {
                    Ok(reply) => {
                        record.lock().push(posted.body);
                        reply
                    }
                    Err(reply) => reply,
                };
                inbound::typed(reply.status, reply.kind, reply.body)
            }
        };
        let address = ([127, 0, 0, 1], 0).into();
        let running = inbound::serve_tls(address, Some(pair), inbound::limits(), handler).unwrap();
        Self {
            url: format!("https://{}", running.local_addr()),
            authority: certificate.pem(),
            accepted,
            _running: running,
        }
    }

    /// The number of requests that the service accepted.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.lock().len()
    }

    /// Their bodies.
    pub(super) fn bodies(&self) -> Vec<Vec<u8>> {
        self.accepted.lock().clone()
    }
}

// === impl Reply ===

impl Reply {
    pub(super) fn json(status: StatusCode, value: &Value) -> Self {
        Self {
            status,
            kind: "application/json",
            body: value.to_string(),
        }
    }

    pub(super) fn text(status: StatusCode, text: &str) -> Self {
        Self {
            status,
            kind: "text/plain",
            body: text.to_owned(),
        }
    }
}

// === impl Posted ===

impl Posted {
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// The body, which has to be an object in JSON with the media type `kind`.
    pub(super) fn json(&self, kind: &str) -> Result<Value, String> {
        let found = self.header("content-type");
        let mut parts = found.split(';').map(str::trim);
        if parts.next() != Some(kind)
            || !parts.all(|part| part.eq_ignore_ascii_case("charset=utf-8"))
        {
            return Err(format!("the content type is {found:?}"));
        }
        let value: Value = serde_json::from_slice(&self.body).map_err(|error| error.to_string())?;
        if value.is_object() {
            Ok(value)
        } else {
            Err("the body is no object".to_owned())
        }
    }
}

/// `Err(why)` unless `holds`.
pub(super) fn demand(holds: bool, why: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.into()) }
}

/// The text of `key`, which has 1 to `longest` characters.
pub(super) fn text<'a>(value: &'a Value, key: &str, longest: usize) -> Result<&'a str, String> {
    let text = value[key].as_str().ok_or(format!("{key} is no text"))?;
    let length = text.chars().count();
    demand(
        (1..=longest).contains(&length),
        format!("{key} has {length} characters"),
    )?;
    Ok(text)
}

/// The list of `key`, which has 1 to `most` parts.
pub(super) fn list<'a>(value: &'a Value, key: &str, most: usize) -> Result<&'a [Value], String> {
    let list = value[key].as_array().ok_or(format!("{key} is no list"))?;
    demand(
        (1..=most).contains(&list.len()),
        format!("{key} has {} parts", list.len()),
    )?;
    Ok(list)
}

/// Each key of an object is one of `known`.
pub(super) fn only(value: &Value, known: &[&str]) -> Result<(), String> {
    let object = value.as_object().ok_or("an object is expected")?;
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("{key} is not known")),
        None => Ok(()),
    }
}

/// `text` is one of `known`.
pub(super) fn one_of(text: &str, known: &[&str]) -> Result<(), String> {
    demand(
        known.contains(&text),
        format!("{text:?} is none of {known:?}"),
    )
}

/// Whether `signature` is the HMAC-SHA256 of `text` by `key`, in base64.
pub(super) fn is_signed(signature: &str, key: &[u8], text: &[u8]) -> bool {
    let Ok(signature) = STANDARD.decode(signature) else {
        return false;
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text);
    mac.verify_slice(&signature).is_ok()
}

/// Whether a time in milliseconds is at most `seconds` away.
pub(super) fn is_current(milliseconds: i64, seconds: i64) -> bool {
    let now = now().as_millisecond();
    (now - milliseconds).abs() <= seconds * 1000
}

pub(super) fn now() -> Timestamp {
    reeve_clock::Clock::system().now()
}
