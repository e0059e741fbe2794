//! Where a gateway is.

use std::fmt;

use url::Url;

use crate::secret::Secret;

/// A gateway's address and, if it asks for one, its bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    base: Url,
    /// `host:port`, with `https://` before it for TLS: as shown in messages and recorded in intents.
    shown: String,
    bearer: Option<Secret>,
}

/// Why a text names no gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseEndpointError {
    /// Nothing is configured.
    #[error("no gateway is configured: set gatewayHost to host:port")]
    Empty,
    /// No host and port can be read from it.
    #[error("{0:?} is no gateway address: use host:port, http://host:port or https://host:port")]
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
