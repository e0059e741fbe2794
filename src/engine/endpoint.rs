//! A gateway: its address, and one GET to it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderValue, Request};
use url::Url;

use super::Error;
use super::error::excerpt;
use crate::outbound::{self, Outbound};
use crate::secret::Secret;

/// A gateway's address and, if it requires one, its bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    base: Url,
    /// `host:port`, with `https://` before it for TLS: as shown in messages and recorded in intents.
    shown: String,
    bearer: Option<Secret>,
}

/// Calls one gateway.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    endpoint: Endpoint,
    outbound: Arc<dyn Outbound>,
}

/// Why a text names no gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseEndpointError {
    /// Nothing is configured.
    #[error("no gateway is configured: set gatewayHost to host:port")]
    Empty,
    /// No host and port can be read from it.
    #[error("{0:?} is not a gateway address: use host:port, http://host:port or https://host:port")]
    Invalid(String),
    /// It holds more than scheme, host and port.
    #[error(
        "the gateway address has a {0}: use only host:port, http://host:port or https://host:port"
    )]
    Extra(&'static str),
}

// === impl Endpoint ===

impl Endpoint {
    /// Reads `host:port` (plain HTTP), or an `http://` or `https://` URL without a path.
    ///
    /// # Errors
    /// When it is none of these. User names, paths, queries and fragments are refused: they would let
    /// a configuration turn a ban into any other request.
    pub fn parse(text: &str) -> Result<Self, ParseEndpointError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ParseEndpointError::Empty);
        }
        let invalid = || ParseEndpointError::Invalid(text.chars().take(100).collect());
        let full = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let base = Url::parse(&full).map_err(|_| invalid())?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(invalid());
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(ParseEndpointError::Extra("user name"));
        }
        if base.path() != "/" {
            return Err(ParseEndpointError::Extra("path"));
        }
        if base.query().is_some() {
            return Err(ParseEndpointError::Extra("query"));
        }
        if base.fragment().is_some() {
            return Err(ParseEndpointError::Extra("fragment"));
        }
        let (Some(host), Some(port)) = (base.host_str(), base.port_or_known_default()) else {
            return Err(invalid());
        };
        let secure = if base.scheme() == "https" {
            "https://"
        } else {
            ""
        };
        let shown = format!("{secure}{host}:{port}");
        Ok(Self {
            base,
            shown,
            bearer: None,
        })
    }

    /// Sends `Authorization: Bearer` with every call. An empty token sends nothing.
    #[must_use]
    pub fn with_bearer(mut self, token: Secret) -> Self {
        self.bearer = (!token.is_empty()).then_some(token);
        self
    }

    /// The URL of `path` with `query`, encoded.
    pub(super) fn url(&self, path: &str, query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        url.set_path(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    pub(super) fn bearer(&self) -> Option<&Secret> {
        self.bearer.as_ref()
    }

    /// `host:port`, with `https://` before it for TLS. [`Endpoint::parse`] reads it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.shown
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("base", &self.base.as_str())
            .field("bearer", &self.bearer)
            .finish()
    }
}

// === impl Caller ===

impl Caller {
    pub(super) fn new(endpoint: Endpoint, outbound: Arc<dyn Outbound>) -> Self {
        Self { endpoint, outbound }
    }

    pub(super) fn endpoint(&self) -> &str {
        self.endpoint.as_str()
    }

    /// The text of a 200 answer to `GET path?query`.
    pub(super) async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<String, Error> {
        let url = self.endpoint.url(path, query);
        let mut request = Request::get(url.as_str()).header(ACCEPT, "application/json");
        if let Some(token) = self.endpoint.bearer() {
            let mut value =
                HeaderValue::try_from(format!("Bearer {}", token.expose())).map_err(|_| {
                    self.no_answer(outbound::Error::Url(
                        "the token is not a header value".into(),
                    ))
                })?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request
            .body(Bytes::new())
            .map_err(|error| self.no_answer(outbound::Error::Url(error.to_string())))?;
        let answer = self
            .outbound
            .send(request)
            .await
            .map_err(|cause| self.no_answer(cause))?;
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        if answer.status() == http::StatusCode::OK {
            Ok(text)
        } else {
            Err(Error::Status {
                gateway: self.endpoint.to_string(),
                code: answer.status().as_u16(),
                detail: excerpt(&text),
            })
        }
    }

    pub(super) fn failed(&self, detail: &str) -> Error {
        Error::Failed {
            gateway: self.endpoint.to_string(),
            detail: excerpt(detail),
        }
    }

    pub(super) fn undecodable(&self, answer: &str) -> Error {
        Error::Undecodable {
            gateway: self.endpoint.to_string(),
            detail: excerpt(answer),
        }
    }

    fn no_answer(&self, cause: outbound::Error) -> Error {
        Error::NoAnswer {
            gateway: self.endpoint.to_string(),
            cause,
        }
    }
}

/// A gateway of tests: it answers every request with a status and a text, and records the request.
#[cfg(test)]
pub(super) mod scripted {
    use super::*;
    use crate::outbound::InProcess;
    use parking_lot::Mutex;

    /// The requests' URLs, as sent.
    pub(crate) type Sent = Arc<Mutex<Vec<String>>>;

    pub(crate) fn answering(code: u16, text: &str) -> (Endpoint, Arc<dyn Outbound>, Sent) {
        let sent = Sent::default();
        let (record, text) = (Arc::clone(&sent), text.to_owned());
        let outbound = InProcess::new(move |request| {
            record.lock().push(request.uri().to_string());
            let answer = http::Response::builder()
                .status(code)
                .body(Bytes::from(text.clone()))
                .unwrap();
            async move { Ok(answer) }
        });
        let endpoint = Endpoint::parse("192.0.2.250:8080").unwrap();
        (endpoint, Arc::new(outbound), sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_port_is_plain_http() {
        for (text, url, shown) in [
            ("10.0.0.9:9521", "http://10.0.0.9:9521/x", "10.0.0.9:9521"),
            (" gateway:8080\n", "http://gateway:8080/x", "gateway:8080"),
            (
                "[2001:db8::9]:8080",
                "http://[2001:db8::9]:8080/x",
                "[2001:db8::9]:8080",
            ),
            ("gateway", "http://gateway/x", "gateway:80"),
            (
                "https://gw.example",
                "https://gw.example/x",
                "https://gw.example:443",
            ),
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint.url("/x", &[]).as_str(), url);
            assert_eq!(endpoint.as_str(), shown);
            assert_eq!(Endpoint::parse(shown).unwrap().as_str(), shown);
        }
    }

    #[test]
    fn anything_that_would_change_the_request_is_refused() {
        for text in [
            "",
            "user@gateway:80",
            "user:secret@gateway:80",
            "gateway:80/path",
            "gateway:80/?x=y",
            "gateway:80#f",
            "ftp://gateway",
            "gateway:99999",
            "a b",
            "http://",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_query_is_encoded() {
        let endpoint = Endpoint::parse("gateway:80").unwrap();
        let url = endpoint.url("/update", &[("cidr", "2001:db8::/32&ban_type=1")]);
        assert_eq!(
            url.query(),
            Some("cidr=2001%3Adb8%3A%3A%2F32%26ban_type%3D1")
        );
    }

    #[test]
    fn the_bearer_token_is_not_printed() {
        let endpoint = Endpoint::parse("gateway:80")
            .unwrap()
            .with_bearer(Secret::new("canary"));
        assert!(!format!("{endpoint:?} {endpoint}").contains("canary"));
    }
}
