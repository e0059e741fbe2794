//! A webhook for cases: HTTPS on loopback, with a certificate of its own authority.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use http::header::LOCATION;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use reeve_serve::certificates::{Certificates, PrivateKeyDer};
use reeve_serve::http::{Answer, Handler, Running, Server, answer};
use serde_json::{Value, json};

/// The resource whose creation shows that a configuration is in use.
pub const PROBE: &str = "podtemplates";

/// A webhook that runs until it is dropped, or, if a case [keeps](super::case::Case::keep) it, to the end of the run.
pub struct Webhook {
    url: String,
    authority: String,
    certificate: String,
    asked: Arc<Mutex<Vec<Value>>>,
    running: Arc<Running>,
}

/// What a webhook sends.
pub enum Reply {
    /// The response of a review, to which the uid is added.
    Response(Value),
    /// A whole document.
    Document(Value),
    /// Another status, and a text.
    Status(u16, &'static str),
    /// Nothing.
    Silence,
}

/// Lets every request pass.
pub fn allow() -> Reply {
    Reply::Response(json!({"allowed": true}))
}

/// Lets a request pass with a JSON patch.
pub fn patch(operations: &Value) -> Reply {
    let patch = STANDARD.encode(operations.to_string());
    Reply::Response(json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"}))
}

/// Denies a request.
pub fn deny(status: Value) -> Reply {
    Reply::Response(json!({"allowed": false, "status": status}))
}

// === impl Webhook ===

impl Webhook {
    /// Starts a webhook that answers the requests of reviews.
    pub fn start(reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let (certificates, certificate, authority) = certificate();
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let questions = asked.clone();
        let reply = Arc::new(reply);
        let handler: Handler = Arc::new(move |request| {
            let (questions, reply) = (questions.clone(), reply.clone());
            async move { reviewed(request, &questions, &*reply).await }.boxed()
        });
        let listener = reeve_serve::http::listen("127.0.0.1:0".parse().expect("an address"));
        let server = Server::on("webhook", listener.expect("it listens"), handler);
        let running = server
            .tls(certificates, false)
            .expect("TLS")
            .start()
            .expect("it starts");
        Self {
            url: format!("https://{}", running.local_addr()),
            authority,
            certificate,
            asked,
            running: Arc::new(running),
        }
    }

    /// `clientConfig` for a path.
    pub fn config(&self, path: &str) -> Value {
        json!({"url": format!("{}{path}", self.url), "caBundle": self.authority})
    }

    /// As [`config`](Self::config), with the certificate of the webhook itself in the place of its authority.
    pub fn config_with_itself(&self, path: &str) -> Value {
        json!({"url": format!("{}{path}", self.url), "caBundle": self.certificate})
    }

    /// The scheme and authority of its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What stops it when the last one is dropped.
    pub fn running(&self) -> Arc<Running> {
        self.running.clone()
    }

    /// Whether it was asked about the probe at `path`.
    pub fn is_probed(&self, path: &str) -> bool {
        let asked = self.asked.lock();
        asked
            .iter()
            .any(|question| question["path"] == path && is_probe(&question["review"]))
    }

    /// The reviews since the last call, without probes.
    pub fn asked(&self) -> Vec<Value> {
        let mut asked = self.asked.lock();
        let mut all: Vec<Value> = asked.drain(..).collect();
        all.retain(|question| !is_probe(&question["review"]));
        all
    }
}

fn is_probe(review: &Value) -> bool {
    review["request"]["resource"]["resource"] == PROBE
}

async fn reviewed(
    request: reeve_serve::http::Request,
    asked: &Mutex<Vec<Value>>,
    reply: &(dyn Fn(&Value) -> Reply + Send + Sync),
) -> Answer {
    let path = request.uri().path_and_query().map(ToString::to_string);
    if let Some((code, place)) = redirection(request.uri().path()) {
        let mut answer = reeve_serve::http::text(code, "elsewhere");
        answer.headers_mut().insert(LOCATION, place);
        return answer;
    }
    if request.method() != Method::POST {
        return reeve_serve::http::text(StatusCode::METHOD_NOT_ALLOWED, "reviews are posted");
    }
    let body = request.into_body().collect().await.expect("a body");
    let review: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
    let path = path.unwrap_or_default();
    let plain = path.split('?').next().unwrap_or_default().to_owned();
    let question = json!({"path": plain, "query": path, "review": review});
    asked.lock().push(question);
    let json = |document: &Value| answer(StatusCode::OK, "application/json", document.to_string());
    let allowed = Reply::Response(json!({"allowed": true}));
    let given = if is_probe(&review) {
        allowed
    } else {
        reply(&review["request"])
    };
    match given {
        Reply::Response(mut response) => {
            response["uid"] = review["request"]["uid"].clone();
            json(
                &json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}),
            )
        }
        Reply::Document(document) => json(&document),
        Reply::Status(code, text) => {
            let code = StatusCode::from_u16(code).expect("a status");
            reeve_serve::http::text(code, text)
        }
        Reply::Silence => std::future::pending().await,
    }
}

/// The answer at `/redirect-CODE/PLACE`, which leads to `/PLACE`.
fn redirection(path: &str) -> Option<(StatusCode, HeaderValue)> {
    let (code, place) = path.strip_prefix("/redirect-")?.split_once('/')?;
    let place = HeaderValue::from_str(&format!("/{place}"));
    Some((code.parse().expect("a status"), place.expect("a place")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A certificate for loopback; itself and its authority in base64.
fn certificate() -> (Certificates, String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Of its own, so that the authority of another webhook is an unknown one.
    let name = hex(&key.public_key_raw()[1..9]);
    parameters.distinguished_name.push(DnType::CommonName, name);
    let authority = parameters.self_signed(&key).expect("an authority");
    let issuer = Issuer::new(parameters, key);
    let mut leaf = CertificateParams::default();
    let loopback = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    leaf.subject_alt_names = vec![SanType::IpAddress(loopback)];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = leaf.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let certificates = Certificates::from_der(vec![certificate.der().clone()], key);
    (
        certificates.expect("certificates"),
        STANDARD.encode(certificate.pem()),
        STANDARD.encode(authority.pem()),
    )
}
