//! The check in front of the paths of the page: which requests may read it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use reeve_serve::access::Access;
use reeve_serve::http::{Answer, Handler};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::inbound;
use crate::secret::Secret;

/// The largest token file, in bytes.
const LARGEST: u64 = 64 * 1024;

/// The check of a request.
#[derive(Clone)]
pub enum Guard {
    /// Every client of this machine.
    Local,
    /// Clients with a token of this file: one a line.
    Token(Arc<PathBuf>),
    /// Users that the API server authorizes to get the path.
    Review(Access),
}

// === impl Guard ===

impl Guard {
    /// The guard of a page at `address`: the token file if there is one, otherwise none on loopback, and elsewhere the
    /// rights of the user, by `access`.
    #[must_use]
    pub fn of(
        address: SocketAddr,
        token_file: Option<PathBuf>,
        access: impl FnOnce() -> Access,
    ) -> Self {
        match token_file {
            Some(file) => Self::Token(Arc::new(file)),
            None if address.ip().is_loopback() => Self::Local,
            None => Self::Review(access()),
        }
    }

    /// Puts the check in front of `handler`.
    pub(super) fn protect(&self, handler: Handler) -> Handler {
        let guard = self.clone();
        let inner = match &guard {
            Self::Review(access) => access.protect(handler),
            Self::Local | Self::Token(_) => handler,
        };
        Arc::new(move |mut request| {
            let (guard, inner) = (guard.clone(), Arc::clone(&inner));
            Box::pin(async move {
                let refused = match &guard {
                    Self::Local => foreign(request.headers()),
                    Self::Token(file) => without_token(request.headers(), file).await,
                    Self::Review(_) => {
                        bear(request.headers_mut());
                        None
                    }
                };
                let mut answer = match refused {
                    None => inner(request).await,
                    Some(answer) => answer,
                };
                if answer.status() == StatusCode::UNAUTHORIZED {
                    // A browser asks for name and password then.
                    let basic = HeaderValue::from_static(
                        "Basic realm=\"IPBlock operator: the token is the password\"",
                    );
                    answer.headers_mut().insert(WWW_AUTHENTICATE, basic);
                }
                answer
            })
        })
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Local => "Local",
            Self::Token(_) => "Token",
            Self::Review(_) => "Review",
        })
    }
}

/// The answer to a request for another name. A page of another site may reach this machine under a name of its own (DNS
/// rebinding); its requests name that.
fn foreign(headers: &HeaderMap) -> Option<Answer> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let name = host.map(|host| match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    });
    let name = name.unwrap_or_default();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok() {
        return None;
    }
    let why = "the page without credentials is for this machine: use localhost or an address";
    Some(inbound::text(StatusCode::FORBIDDEN, why))
}

/// The answer to a request without a token of `file`.
async fn without_token(headers: &HeaderMap, file: &Arc<PathBuf>) -> Option<Answer> {
    let unauthorized = || inbound::text(StatusCode::UNAUTHORIZED, "a token is required");
    let Some(shown) = token(headers) else {
        return Some(unauthorized());
    };
    let path = Arc::clone(file);
    // Read for each request: a rotated token counts at once.
    let read = tokio::task::spawn_blocking(move || tokens(&path)).await;
    let known = match read {
        Ok(Ok(known)) if !known.is_empty() => known,
        other => {
            let why = match other {
                Ok(Ok(_)) => "it is empty".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::warn!(file = %file.display(), why, "could not read the tokens of the page");
            let text = "the tokens cannot be read";
            return Some(inbound::text(StatusCode::SERVICE_UNAVAILABLE, text));
        }
    };
    let shown = Sha256::digest(shown.as_bytes());
    let mut found = subtle::Choice::from(0);
    for secret in &known {
        found |= shown.ct_eq(&Sha256::digest(secret.expose().as_bytes()));
    }
    if found.into() {
        None
    } else {
        Some(unauthorized())
    }
}

fn tokens(path: &PathBuf) -> std::io::Result<Vec<Secret>> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(LARGEST).read_to_string(&mut text)?;
    let secrets = text.lines().map(Secret::new);
    Ok(secrets.filter(|secret| !secret.is_empty()).collect())
}

/// The token of a request: a bearer token, or the password that a browser sends.
fn token(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
    let (_, password) = pair.split_once(':')?;
    Some(password.to_owned())
}

/// Makes the password of a browser a bearer token.
fn bear(headers: &mut HeaderMap) {
    let token = token(headers).and_then(|token| format!("Bearer {token}").parse().ok());
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, token);
    }
}
