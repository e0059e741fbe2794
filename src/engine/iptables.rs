//! The iptables agent: `/limit`, `/unlimit`, `/limits`.
//!
//! The agent keeps no time and forgets everything when its machine restarts: a ban lasts until it is
//! lifted or lost. It reports failures with HTTP 200.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::endpoint::Caller;
use super::{Ban, Capabilities, Endpoint, Engine, Error, Kind, Remaining, Unban};
use crate::outbound::{BoxFuture, Outbound};
use crate::target::Target;

/// Calls the iptables agent.
#[derive(Clone, Debug)]
pub struct Iptables {
    caller: Caller,
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Limits {
    limited_ips: Vec<String>,
}

// === impl Iptables ===

impl Iptables {
    /// The agent at `endpoint`.
    #[must_use]
    pub fn new(endpoint: Endpoint, outbound: Arc<dyn Outbound>) -> Self {
        Self {
            caller: Caller::new(endpoint, outbound),
        }
    }

    async fn status(&self, path: &str, target: &Target) -> Result<(Answer, String), Error> {
        let text = self
            .caller
            .get(path, &[("ip", &target.to_string())])
            .await?;
        match serde_json::from_str::<Answer>(&text) {
            Ok(answer) if answer.status == "failed" => Err(self.caller.failed(&answer.error)),
            Ok(answer) => Ok((answer, text)),
            Err(_) => Err(self.caller.undecodable(&text)),
        }
    }
}

impl Engine for Iptables {
    fn capabilities(&self) -> Capabilities {
        Kind::Iptables.capabilities()
    }

    fn endpoint(&self) -> &str {
        self.caller.endpoint()
    }

    fn ban<'a>(
        &'a self,
        target: &'a Target,
        _remaining: Option<Remaining>,
    ) -> BoxFuture<'a, Result<Ban, Error>> {
        Box::pin(async move {
            let (answer, text) = self.status("/limit", target).await?;
            match answer.status.as_str() {
                "limited" => Ok(Ban::Added),
                "already_limited" => Ok(Ban::Already),
                _ => Err(self.caller.undecodable(&text)),
            }
        })
    }

    fn unban<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Unban, Error>> {
        Box::pin(async move {
            let (answer, text) = self.status("/unlimit", target).await?;
            match answer.status.as_str() {
                // The agent answers the same when there was nothing to remove.
                "unlimited" => Ok(Unban::Removed),
                _ => Err(self.caller.undecodable(&text)),
            }
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, Error>> {
        Box::pin(async move {
            let text = self.caller.get("/limits", &[]).await?;
            let limits: Limits =
                serde_json::from_str(&text).map_err(|_| self.caller.undecodable(&text))?;
            // Some versions list a range as they name it in their rules, with `_` for `/`. An entry that is not an
            // address is not the operator's.
            let targets = limits
                .limited_ips
                .iter()
                .filter_map(|listed| listed.replace('_', "/").parse().ok())
                .collect();
            Ok(Some(targets))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::scripted::answering;
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn requests_carry_the_canonical_target_encoded() {
        for (given, query) in [
            ("192.0.2.7", "ip=192.0.2.7"),
            ("192.0.2.7/32", "ip=192.0.2.7"),
            ("::ffff:192.0.2.7", "ip=192.0.2.7"),
            ("198.51.100.0/24", "ip=198.51.100.0%2F24"),
            ("2001:0DB8::0001", "ip=2001%3Adb8%3A%3A1"),
        ] {
            let (endpoint, outbound, sent) = answering(200, r#"{"status":"limited"}"#);
            let engine = Iptables::new(endpoint, outbound);
            engine.ban(&target(given), None).await.unwrap();
            assert_eq!(
                *sent.lock(),
                [format!("http://192.0.2.250:8080/limit?{query}")]
            );
        }
    }

    #[tokio::test]
    async fn every_answer_to_a_ban_is_read_by_its_text() {
        let table: &[(u16, &str, Result<Ban, &str>)] = &[
            (
                200,
                r#"{"ip":"192.0.2.7","status":"limited"}"#,
                Ok(Ban::Added),
            ),
            (
                200,
                r#"{"ip":"192.0.2.7","status":"already_limited"}"#,
                Ok(Ban::Already),
            ),
            (
                200,
                r#"{"ip":"192.0.2.7","status":"failed","error":"iptables: No chain"}"#,
                Err("gateway 192.0.2.250:8080 failed: iptables: No chain"),
            ),
            (
                200,
                r#"{"ip":"192.0.2.7","status":"failed"}"#,
                Err("gateway 192.0.2.250:8080 failed"),
            ),
            (
                200,
                r#"{"status":"unlimited"}"#,
                Err(
                    "gateway 192.0.2.250:8080 gave an answer that is not understood: {\"status\":\"unlimited\"}",
                ),
            ),
            (
                200,
                "<html>hello</html>",
                Err(
                    "gateway 192.0.2.250:8080 gave an answer that is not understood: <html>hello</html>",
                ),
            ),
            (
                200,
                "",
                Err("gateway 192.0.2.250:8080 gave an answer that is not understood"),
            ),
            (
                400,
                r#"{"error":"Missing 'ip' query parameter"}"#,
                Err(
                    "gateway 192.0.2.250:8080 answered HTTP 400: {\"error\":\"Missing 'ip' query parameter\"}",
                ),
            ),
            (500, "", Err("gateway 192.0.2.250:8080 answered HTTP 500")),
            (302, "", Err("gateway 192.0.2.250:8080 answered HTTP 302")),
            (
                201,
                r#"{"status":"limited"}"#,
                Err("gateway 192.0.2.250:8080 answered HTTP 201: {\"status\":\"limited\"}"),
            ),
        ];
        for (code, text, expected) in table {
            let (endpoint, outbound, _) = answering(*code, text);
            let engine = Iptables::new(endpoint, outbound);
            let result = engine.ban(&target("192.0.2.7"), None).await;
            let result = result.map_err(|error| error.to_string());
            assert_eq!(result, expected.map_err(str::to_owned), "{code} {text}");
        }
    }

    #[tokio::test]
    async fn every_answer_to_an_unban_is_read_by_its_text() {
        for (text, good) in [
            (r#"{"ip":"192.0.2.7","status":"unlimited"}"#, true),
            (r#"{"ip":"192.0.2.7","status":"failed","error":"x"}"#, false),
            (r#"{"ip":"192.0.2.7","status":"limited"}"#, false),
            ("unlimited", false),
        ] {
            let (endpoint, outbound, sent) = answering(200, text);
            let engine = Iptables::new(endpoint, outbound);
            let result = engine.unban(&target("192.0.2.7")).await;
            assert_eq!(result.is_ok(), good, "{text}");
            assert_eq!(
                *sent.lock(),
                ["http://192.0.2.250:8080/unlimit?ip=192.0.2.7"]
            );
        }
    }

    #[tokio::test]
    async fn the_list_holds_what_the_agent_lists() {
        let text = r#"{"limited_ips":["192.0.2.7","198.51.100.0_24","203.0.113.0/25","eth0"]}"#;
        let (endpoint, outbound, _) = answering(200, text);
        let engine = Iptables::new(endpoint, outbound);
        let listed = engine.list().await.unwrap().unwrap();
        let expected = ["192.0.2.7", "198.51.100.0/24", "203.0.113.0/25"];
        assert_eq!(listed, expected.map(target).into());
        let (endpoint, outbound, _) = answering(500, r#"{"error":"no"}"#);
        assert!(Iptables::new(endpoint, outbound).list().await.is_err());
    }
}
