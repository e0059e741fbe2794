//! Requests of the API: signature, time and nonce must be right.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use reeve_serve::http::{Answer, Budget, Handler, Request, hang_up};

use super::body;
use super::world::{World, unread};
use crate::cloud::{Refusal, VERSION};
use crate::parameters::Parameters;
use crate::signature::{self, Authorization, Canonical, Method};

/// How far the time of a request may be off, either way.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(15);
/// The most nonces that are remembered. More requests within the tolerance are throttled.
const MOST_NONCES: usize = 200_000;

/// A request, taken apart.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
}

/// The nonces of requests that are still within the tolerance.
#[derive(Debug, Default)]
pub(super) struct Nonces {
    seen: HashMap<String, Timestamp>,
    swept_at: Option<Timestamp>,
}

/// Answers the requests of the API.
pub(super) fn handler(world: Arc<World>, budget: Budget, body_timeout: Duration) -> Handler {
    Arc::new(move |request| {
        let (world, budget) = (Arc::clone(&world), budget.clone());
        Box::pin(async move { answer(&world, &budget, body_timeout, request).await })
    })
}

async fn answer(
    world: &World,
    budget: &Budget,
    body_timeout: Duration,
    request: Request,
) -> Answer {
    let (head, body) = request.into_parts();
    let body = match body::read(budget, body, body_timeout).await {
        Ok(body) => body,
        Err(refusal) => return unread(world, refusal),
    };
    let query = head.uri.query().unwrap_or_default();
    let received = pairs(query.as_bytes()).map(|query| Received {
        method: head.method.as_str(),
        path: head.uri.path(),
        query,
        headers: &head.headers,
        body: &body,
    });
    let verified = received.and_then(|received| world.verify(&received));
    world.answer(verified).await.unwrap_or_else(hang_up)
}

/// The pairs of a query or a form. A name that comes twice is refused: its signature would cover one value only.
fn pairs(encoded: &[u8]) -> Result<BTreeMap<String, String>, Refusal> {
    let mut pairs = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(encoded) {
        if pairs.contains_key(name.as_ref()) {
            return Err(Refusal::invalid(&name));
        }
        pairs.insert(name.into_owned(), value.into_owned());
    }
    Ok(pairs)
}

/// The parameters of a request whose signature is right.
pub(super) fn verify(
    keys: &BTreeMap<String, String>,
    nonces: &mut Nonces,
    now: Timestamp,
    received: &Received<'_>,
) -> Result<Parameters, Refusal> {
    let header = |name: &str| {
        let value = received.headers.get(name);
        value.and_then(|value| value.to_str().ok()).map(str::trim)
    };
    if received.path != "/" {
        return Err(Refusal::new(
            404,
            "InvalidPath",
            "The path of the API is /.",
        ));
    }
    let form = match header("content-type") {
        Some(kind) if kind.starts_with("application/x-www-form-urlencoded") => {
            pairs(received.body)?
        }
        _ => BTreeMap::new(),
    };
    let parameters = match header("authorization").and_then(Authorization::parse) {
        Some(authorization) => {
            acs3(keys, nonces, now, received, &authorization)?;
            let mut parameters = merge(received.query.clone(), form)?;
            for (name, from) in [("Action", "x-acs-action"), ("Version", "x-acs-version")] {
                let value = header(from).ok_or_else(|| Refusal::missing(from))?;
                parameters.insert(name.to_owned(), value.to_owned());
            }
            parameters
        }
        None => {
            let parameters = merge(received.query.clone(), form)?;
            version_1(keys, nonces, now, received.method, &parameters)?;
            parameters
        }
    };
    let parameters = Parameters::from(parameters);
    if parameters.required("Version")? != VERSION {
        let message = format!("The version of this API is {VERSION}.");
        return Err(Refusal::new(400, "InvalidVersion", message));
    }
    parameters.one_of("Format", &["JSON", "json"])?;
    Ok(parameters)
}

fn merge(
    mut query: BTreeMap<String, String>,
    form: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Refusal> {
    if let Some(name) = form.keys().find(|name| query.contains_key(*name)) {
        return Err(Refusal::invalid(name));
    }
    query.extend(form);
    Ok(query)
}

fn secret<'a>(keys: &'a BTreeMap<String, String>, id: &str) -> Result<&'a str, Refusal> {
    let secret = keys.get(id).map(String::as_str);
    let message = "The access key does not exist.";
    secret.ok_or_else(|| Refusal::new(404, "InvalidAccessKeyId.NotFound", message))
}

fn mismatch(signed: &str) -> Refusal {
    let message = format!(
        "The signature is not the one that this server calculates. It signs: {}",
        signed.replace('\n', "\\n")
    );
    Refusal::new(400, "SignatureDoesNotMatch", message)
}

fn version_1(
    keys: &BTreeMap<String, String>,
    nonces: &mut Nonces,
    now: Timestamp,
    method: &str,
    parameters: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let get = |name: &str| {
        let value = parameters.get(name).map(String::as_str);
        value.ok_or_else(|| Refusal::missing(name))
    };
    let secret = secret(keys, get("AccessKeyId")?)?;
    if get("SignatureVersion")? != "1.0" {
        return Err(Refusal::invalid("SignatureVersion"));
    }
    let hash = Method::named(get("SignatureMethod")?);
    let hash = hash.ok_or_else(|| Refusal::invalid("SignatureMethod"))?;
    let calculated = signature::sign(hash, method, parameters, secret);
    if !signature::equal(&calculated, get("Signature")?) {
        // An answer ends in logs.
        let mut shown = parameters.clone();
        if let Some(key) = shown.get_mut("PrivateKey") {
            *key = "HIDDEN".to_owned();
        }
        return Err(mismatch(&signature::string_to_sign(method, &shown)));
    }
    nonces.take(now, get("Timestamp")?, get("SignatureNonce")?)
}

fn acs3(
    keys: &BTreeMap<String, String>,
    nonces: &mut Nonces,
    now: Timestamp,
    received: &Received<'_>,
    authorization: &Authorization<'_>,
) -> Result<(), Refusal> {
    let secret = secret(keys, authorization.credential)?;
    let mut headers = BTreeMap::new();
    for name in &authorization.signed_headers {
        let value = received
            .headers
            .get(*name)
            .and_then(|value| value.to_str().ok());
        let value = value.ok_or_else(|| Refusal::missing(name))?;
        headers.insert((*name).to_owned(), value.trim().to_owned());
    }
    // An action in a header that is not signed could be replaced.
    let unsigned = received.headers.keys().find(|name| {
        let name = name.as_str();
        (name == "host" || name.starts_with("x-acs-")) && !headers.contains_key(name)
    });
    if let Some(name) = unsigned {
        let message = format!("The header {name} is not signed.");
        return Err(Refusal::new(400, "IncompleteSignature", message));
    }
    let get = |name: &str| {
        let value = headers.get(name).map(String::as_str);
        value.ok_or_else(|| Refusal::missing(name))
    };
    let payload = signature::sha256_hex(received.body);
    if !signature::equal(&payload, get("x-acs-content-sha256")?) {
        let message = "The body does not have the hash that was signed.";
        return Err(Refusal::new(400, "SignatureDoesNotMatch", message));
    }
    let canonical = Canonical {
        method: received.method,
        path: received.path,
        query: &received.query,
        headers: &headers,
        payload: &payload,
    };
    if !signature::equal(&canonical.sign(secret), authorization.signature) {
        return Err(mismatch(&canonical.text()));
    }
    nonces.take(now, get("x-acs-date")?, get("x-acs-signature-nonce")?)
}

// === impl Nonces ===

impl Nonces {
    /// Accepts a time that is near `now`, and a nonce that was not seen before.
    fn take(&mut self, now: Timestamp, time: &str, nonce: &str) -> Result<(), Refusal> {
        let at: Timestamp = time.parse().map_err(|_| {
            let message = "The time is not of the form 2014-05-15T12:00:00Z.";
            Refusal::new(400, "InvalidTimeStamp.Format", message)
        })?;
        if now.duration_since(at).abs() > TOLERANCE {
            let message = format!("The time is too far from {now}.");
            return Err(Refusal::new(400, "InvalidTimeStamp.Expired", message));
        }
        let sweep = self.seen.len() >= MOST_NONCES
            || self
                .swept_at
                .is_none_or(|at| now.duration_since(at).abs() > TOLERANCE);
        if sweep {
            self.seen
                .retain(|_, at| now.duration_since(*at).abs() <= TOLERANCE);
            self.swept_at = Some(now);
        }
        if self.seen.contains_key(nonce) {
            let message = "The nonce of the signature was used before.";
            return Err(Refusal::new(400, "SignatureNonceUsed", message));
        }
        if self.seen.len() >= MOST_NONCES || nonce.len() > 256 {
            return Err(Refusal::throttled());
        }
        self.seen.insert(nonce.to_owned(), at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// A request that a client signed, which tests change afterwards.
    #[derive(Clone)]
    struct Sent {
        method: &'static str,
        query: BTreeMap<String, String>,
        headers: HeaderMap,
        body: Vec<u8>,
    }

    impl Sent {
        fn header(&mut self, name: &'static str, value: &str) {
            self.headers.insert(name, value.parse().unwrap());
        }

        fn verify(&self) -> Result<Parameters, String> {
            let keys = BTreeMap::from([("id".to_owned(), "secret".to_owned())]);
            let received = Received {
                method: self.method,
                path: "/",
                query: self.query.clone(),
                headers: &self.headers,
                body: &self.body,
            };
            let now = NOW.parse().unwrap();
            let verified = verify(&keys, &mut Nonces::default(), now, &received);
            verified.map_err(|refusal| refusal.code)
        }
    }

    fn call() -> Parameters {
        Parameters::action("DeleteLoadBalancer").with("LoadBalancerId", "lb-1")
    }

    fn version_1() -> Sent {
        let mut call = call()
            .with("Version", VERSION)
            .with("AccessKeyId", "id")
            .with("SignatureMethod", "HMAC-SHA1")
            .with("SignatureVersion", "1.0")
            .with("SignatureNonce", "n")
            .with("Timestamp", NOW);
        let signature = signature::sign(Method::HmacSha1, "GET", call.all(), "secret");
        call.set("Signature", signature);
        Sent {
            method: "GET",
            query: call.all().clone(),
            headers: HeaderMap::new(),
            body: Vec::new(),
        }
    }

    fn acs3() -> Sent {
        let mut sent = Sent {
            method: "POST",
            query: BTreeMap::from([("LoadBalancerId".to_owned(), "lb-1".to_owned())]),
            headers: HeaderMap::new(),
            body: b"Name=a".to_vec(),
        };
        let payload = signature::sha256_hex(&sent.body);
        let headers: BTreeMap<String, String> = [
            ("host", "127.0.0.1"),
            ("x-acs-action", "DeleteLoadBalancer"),
            ("x-acs-content-sha256", &payload),
            ("x-acs-date", NOW),
            ("x-acs-signature-nonce", "n"),
            ("x-acs-version", VERSION),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        let canonical = Canonical {
            method: sent.method,
            path: "/",
            query: &sent.query,
            headers: &headers,
            payload: &payload,
        };
        let authorization = canonical.authorization("id", "secret");
        for (name, value) in &headers {
            let name: http::HeaderName = name.parse().unwrap();
            sent.headers.insert(name, value.parse().unwrap());
        }
        sent.header("authorization", &authorization);
        sent.header("content-type", "application/x-www-form-urlencoded");
        sent
    }

    #[test]
    fn signed_requests_pass() {
        let parameters = version_1().verify().unwrap();
        assert_eq!(parameters.text("LoadBalancerId"), Some("lb-1"));
        let parameters = acs3().verify().unwrap();
        assert_eq!(parameters.text("Action"), Some("DeleteLoadBalancer"));
        assert_eq!(parameters.text("LoadBalancerId"), Some("lb-1"));
        assert_eq!(parameters.text("Name"), Some("a"));
    }

    #[test]
    fn a_change_of_any_part_is_seen() {
        let changed = |sent: Sent, change: fn(&mut Sent)| {
            let mut sent = sent;
            change(&mut sent);
            sent.verify().unwrap_err()
        };
        let mismatch = "SignatureDoesNotMatch";
        let another = |sent: &mut Sent| {
            sent.query
                .insert("LoadBalancerId".to_owned(), "lb-2".to_owned());
        };
        let one_more = |sent: &mut Sent| {
            sent.query.insert("Force".to_owned(), "1".to_owned());
        };
        for sent in [version_1(), acs3()] {
            assert_eq!(changed(sent.clone(), another), mismatch);
            assert_eq!(changed(sent.clone(), one_more), mismatch);
            assert_eq!(changed(sent, |sent| sent.method = "PUT"), mismatch);
        }
        let action = |sent: &mut Sent| sent.header("x-acs-action", "CreateLoadBalancer");
        assert_eq!(changed(acs3(), action), mismatch);
        let body = |sent: &mut Sent| sent.body = b"Name=b".to_vec();
        assert_eq!(changed(acs3(), body), mismatch);
        let header = |sent: &mut Sent| sent.header("x-acs-security-token", "t");
        assert_eq!(changed(acs3(), header), "IncompleteSignature");
        let twice = |sent: &mut Sent| {
            sent.query.insert("Name".to_owned(), "a".to_owned());
        };
        assert_eq!(changed(acs3(), twice), mismatch);
        let unsigned = |sent: &mut Sent| {
            sent.headers.remove("authorization");
        };
        assert_eq!(changed(acs3(), unsigned), "MissingParameter");
        let unsigned = |sent: &mut Sent| {
            sent.query.remove("Signature");
        };
        assert_eq!(changed(version_1(), unsigned), "MissingParameter");
    }

    #[test]
    fn nonces_are_forgotten_when_their_time_is_over() {
        let mut nonces = Nonces::default();
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        assert!(nonces.take(at(NOW), NOW, "n").is_ok());
        assert!(nonces.take(at(NOW), NOW, "n").is_err());
        let later = "2026-01-01T00:31:00Z";
        assert!(nonces.take(at(later), later, "m").is_ok());
        assert_eq!(nonces.seen.len(), 1);
        let expired = nonces.take(at(later), NOW, "n").unwrap_err();
        assert_eq!(expired.code, "InvalidTimeStamp.Expired");
    }
}
