//! Requests of the API: signature, time and nonce must be right.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use reeve_serve::http::{Answer, Budget, Handler, Request, StatusCode, hang_up, text};

use super::LONGEST_BODY;
use super::world::World;
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
pub(super) fn handler(world: Arc<World>, budget: Budget) -> Handler {
    Arc::new(move |request| {
        let (world, budget) = (Arc::clone(&world), budget.clone());
        Box::pin(async move { answer(&world, &budget, request).await })
    })
}

async fn answer(world: &World, budget: &Budget, request: Request) -> Answer {
    let (head, body) = request.into_parts();
    let body = match budget.read(body, LONGEST_BODY).await {
        Ok(body) => body,
        Err(error) => return text(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
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
        return Err(mismatch(&signature::string_to_sign(method, parameters)));
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
