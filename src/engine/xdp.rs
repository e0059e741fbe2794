//! The XDP gateway: `/update`, `/remove`.
//!
//! The gateway keeps time itself, but checks only once a minute, and an expired entry stays in its
//! longest-prefix map as a hole: an expired address inside a banned range passes. So the operator always
//! removes a ban that is due. There is no list; a ban that may be lost is asserted again. The gateway
//! answers every outcome with HTTP 200 and a sentence.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::endpoint::Caller;
use super::{Ban, Capabilities, Endpoint, Engine, Error, Kind, Remaining, Unban};
use crate::outbound::{BoxFuture, Outbound};
use crate::target::Target;

/// Calls the XDP gateway.
#[derive(Clone, Debug)]
pub struct Xdp {
    caller: Caller,
}

#[derive(Deserialize)]
struct Answer {
    message: String,
}

// === impl Xdp ===

impl Xdp {
    /// The gateway at `endpoint`.
    #[must_use]
    pub fn new(endpoint: Endpoint, outbound: Arc<dyn Outbound>) -> Self {
        Self {
            caller: Caller::new(endpoint, outbound),
        }
    }

    async fn message(&self, path: &str, query: &[(&str, &str)]) -> Result<String, Error> {
        let text = self.caller.get(path, query).await?;
        match serde_json::from_str::<Answer>(&text) {
            Ok(answer) => Ok(answer.message),
            Err(_) => Err(self.caller.undecodable(&text)),
        }
    }
}

impl Engine for Xdp {
    fn capabilities(&self) -> Capabilities {
        Kind::Xdp.capabilities()
    }

    fn endpoint(&self) -> &str {
        self.caller.endpoint()
    }

    fn ban<'a>(
        &'a self,
        target: &'a Target,
        remaining: Option<Remaining>,
    ) -> BoxFuture<'a, Result<Ban, Error>> {
        Box::pin(async move {
            let (kind, seconds) = match remaining {
                Some(remaining) => ("0", remaining.as_secs()),
                None => ("1", 0),
            };
            let query = [
                ("cidr", &*target.to_string()),
                ("ban_type", kind),
                ("ban_time", &*seconds.to_string()),
            ];
            let message = self.message("/update", &query).await?;
            if message.contains("Successfully added") {
                Ok(Ban::Added)
            } else if message.contains("have been updated") {
                Ok(Ban::Already)
            } else {
                Err(self.caller.failed(&message))
            }
        })
    }

    fn unban<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Unban, Error>> {
        Box::pin(async move {
            let message = self
                .message("/remove", &[("cidr", &target.to_string())])
                .await?;
            if message.contains("Successfully removed") {
                Ok(Unban::Removed)
            } else if message.contains("not exists") {
                Ok(Unban::Absent)
            } else {
                Err(self.caller.failed(&message))
            }
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, Error>> {
        Box::pin(async { Ok(None) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::scripted::answering;
    use super::*;
    use std::time::Duration;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn a_ban_is_for_a_number_of_seconds_or_without_end() {
        for (given, remaining, query) in [
            (
                "192.0.2.7",
                Some(90_500),
                "cidr=192.0.2.7&ban_type=0&ban_time=91",
            ),
            (
                "192.0.2.7/32",
                Some(1),
                "cidr=192.0.2.7&ban_type=0&ban_time=1",
            ),
            (
                "2001:db8::/48",
                None,
                "cidr=2001%3Adb8%3A%3A%2F48&ban_type=1&ban_time=0",
            ),
        ] {
            let (endpoint, outbound, sent) =
                answering(200, r#"{"message":"Successfully added X to banned list"}"#);
            let engine = Xdp::new(endpoint, outbound);
            let remaining = remaining.map(|ms| Remaining::new(Duration::from_millis(ms)));
            engine.ban(&target(given), remaining).await.unwrap();
            assert_eq!(
                *sent.lock(),
                [format!("http://192.0.2.250:8080/update?{query}")]
            );
        }
    }

    #[tokio::test]
    async fn every_answer_to_a_ban_is_read_by_its_text() {
        let table: &[(u16, &str, Result<Ban, &str>)] = &[
            (
                200,
                r#"{"message":"Successfully added 192.0.2.7 to banned list"}"#,
                Ok(Ban::Added),
            ),
            (
                200,
                r#"{"message":"192.0.2.7 have been updated"}"#,
                Ok(Ban::Already),
            ),
            (
                200,
                r#"{"message":"Failed to add 192.0.2.7 to banned list"}"#,
                Err("gateway 192.0.2.250:8080 failed: Failed to add 192.0.2.7 to banned list"),
            ),
            (
                200,
                r#"{"status":"limited"}"#,
                Err(
                    "gateway 192.0.2.250:8080 gave an answer that is not understood: {\"status\":\"limited\"}",
                ),
            ),
            (
                422,
                r#"{"detail":[{"loc":["query","cidr"]}]}"#,
                Err(
                    "gateway 192.0.2.250:8080 answered HTTP 422: {\"detail\":[{\"loc\":[\"query\",\"cidr\"]}]}",
                ),
            ),
            (
                500,
                "Internal Server Error",
                Err("gateway 192.0.2.250:8080 answered HTTP 500: Internal Server Error"),
            ),
        ];
        for (code, text, expected) in table {
            let (endpoint, outbound, _) = answering(*code, text);
            let engine = Xdp::new(endpoint, outbound);
            let result = engine.ban(&target("192.0.2.7"), None).await;
            let result = result.map_err(|error| error.to_string());
            assert_eq!(result, expected.map_err(str::to_owned), "{code} {text}");
        }
    }

    #[tokio::test]
    async fn every_answer_to_an_unban_is_read_by_its_text() {
        let table: &[(&str, Result<Unban, &str>)] = &[
            (
                r#"{"message":"Successfully removed 192.0.2.7 from banned list"}"#,
                Ok(Unban::Removed),
            ),
            (
                r#"{"message":"192.0.2.7 not exists, skip"}"#,
                Ok(Unban::Absent),
            ),
            // The gateway's own wording when a removal fails.
            (
                r#"{"message":"Failed to add 192.0.2.7 to banned list"}"#,
                Err("GatewayFailed"),
            ),
            ("null", Err("GatewayAnswer")),
        ];
        for (text, expected) in table {
            let (endpoint, outbound, sent) = answering(200, text);
            let engine = Xdp::new(endpoint, outbound);
            let result = engine.unban(&target("192.0.2.7")).await;
            assert_eq!(result.map_err(|error| error.reason()), *expected, "{text}");
            assert_eq!(
                *sent.lock(),
                ["http://192.0.2.250:8080/remove?cidr=192.0.2.7"]
            );
        }
    }

    #[tokio::test]
    async fn there_is_no_list() {
        let (endpoint, outbound, sent) = answering(200, "");
        assert_eq!(Xdp::new(endpoint, outbound).list().await, Ok(None));
        assert!(sent.lock().is_empty());
    }
}
