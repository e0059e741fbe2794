//! Grafana's webhook payload, read as far as the operator uses it. Pure.

use std::net::Ipv4Addr;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::alerts::{Alerts, Format, MOST_ALERTS, Unreadable, Verdict, Wanted};
use super::credentials::GRAFANA_HMAC_HEADER;
use crate::duration;
use crate::target::{self, Target};

/// Names of alerts that are not about an address: the test button, and rules without data.
const IGNORED_NAMES: [&str; 3] = ["TestAlert", "DatasourceNoData", "DatasourceError"];

/// Longest reason taken over, in characters.
const LONGEST_REASON: usize = 1024;

/// Grafana's request. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    alerts: Vec<Alert>,
    /// How many alerts Grafana left out of this request.
    #[serde(default)]
    truncated_alerts: Option<u64>,
}

/// One alert.
#[derive(Debug, Deserialize)]
struct Alert {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    labels: Option<Map<String, Value>>,
    #[serde(default)]
    annotations: Option<Map<String, Value>>,
}

/// Grafana's webhook contact point.
pub(super) const FORMAT: Format = Format {
    name: "grafana",
    hmac_header: GRAFANA_HMAC_HEADER,
    read,
};

fn read(body: &[u8], allow_ranges: bool) -> Result<Alerts, Unreadable> {
    let payload: Payload = serde_json::from_slice(body).map_err(|error| Unreadable::Malformed {
        payload: "Grafana webhook payload",
        problem: error.to_string(),
    })?;
    if payload.alerts.len() > MOST_ALERTS {
        return Err(Unreadable::TooMany);
    }
    let verdicts = payload.alerts.iter();
    Ok(Alerts {
        verdicts: verdicts.map(|alert| verdict(alert, allow_ranges)).collect(),
        left_out: payload.truncated_alerts.unwrap_or_default(),
    })
}

/// Reads the request of `alert`.
fn verdict(alert: &Alert, allow_ranges: bool) -> Verdict {
    if alert.status.as_deref() != Some("firing") {
        return Verdict::Ignored;
    }
    let label = |name: &str| text(alert.labels.as_ref(), name);
    if label("alertname").is_some_and(|name| IGNORED_NAMES.contains(&name)) {
        return Verdict::Ignored;
    }
    let Some(raw) = label("ip") else {
        return Verdict::Ignored;
    };
    let target = match address(raw) {
        Ok(target) => target,
        Err(error) => return Verdict::Invalid(error.to_string()),
    };
    if !target.is_host() && !allow_ranges {
        return Verdict::Invalid(format!(
            "{target} is a range, and this trigger bans single addresses (allowRanges: true changes that)"
        ));
    }
    let (duration, remark) = match label("duration") {
        None => (None, None),
        Some(given) => match duration::parse(given) {
            Ok(_) => (Some(given.to_owned()), None),
            // The attack is real even when the label is wrong: ban, for the default time.
            Err(error) => (
                None,
                Some(format!("{target}: {error}; the default is used")),
            ),
        },
    };
    let annotation = |name: &str| text(alert.annotations.as_ref(), name);
    let reason = annotation("description")
        .or_else(|| annotation("summary"))
        .or_else(|| label("alertname"))
        .unwrap_or("alert without a description");
    Verdict::Ban(Wanted {
        target,
        raw: raw.to_owned(),
        duration,
        reason: reason_text(reason),
        remark,
    })
}

fn text<'a>(map: Option<&'a Map<String, Value>>, name: &str) -> Option<&'a str> {
    let text = map?.get(name)?.as_str()?.trim();
    (!text.is_empty()).then_some(text)
}

fn reason_text(text: &str) -> String {
    let mut reason = String::from("Grafana alert: ");
    let clean = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST_REASON);
    reason.extend(clean);
    reason
}

/// The address in a label: `192.0.2.7`, `192.0.2.7:443`, `[2001:db8::1]`, `[2001:db8::1]:443`.
fn address(raw: &str) -> Result<Target, target::Error> {
    if let Some(inner) = raw.strip_prefix('[')
        && let Some((address, rest)) = inner.split_once(']')
        && (rest.is_empty() || is_port(rest))
    {
        return address.parse();
    }
    if let Some((address, _)) = raw.split_once(':')
        && address.parse::<Ipv4Addr>().is_ok()
        && is_port(&raw[address.len()..])
    {
        return address.parse();
    }
    raw.parse()
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(alert: &Value) -> Verdict {
        verdict(&serde_json::from_value(alert.clone()).unwrap(), false)
    }

    fn banned(alert: &Value) -> Wanted {
        match judged(alert) {
            Verdict::Ban(wanted) => wanted,
            other => panic!("{alert}: {other:?}"),
        }
    }

    #[test]
    fn the_address_is_found_in_each_form() {
        for (label, target) in [
            ("192.0.2.7", "192.0.2.7"),
            (" 192.0.2.7 ", "192.0.2.7"),
            ("192.0.2.7:443", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("2001:0DB8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
        ] {
            let wanted = banned(&json!({"status": "firing", "labels": {"ip": label}}));
            assert_eq!(wanted.target.to_string(), target, "{label}");
        }
    }

    #[test]
    fn what_is_no_address_is_invalid_and_says_so() {
        for label in [
            "example.com",
            "192.0.2",
            "192.0.2.7:port",
            "192.0.2.007",
            "192.0.2.7:99999",
            "fe80::1%eth0",
            "[192.0.2.7",
            "192.0.2.7&ban_type=1",
            "192.0.2.0/24",
            "0.0.0.0/0",
        ] {
            let verdict = judged(&json!({"status": "firing", "labels": {"ip": label}}));
            assert!(
                matches!(verdict, Verdict::Invalid(_)),
                "{label}: {verdict:?}"
            );
        }
        let range = json!({"status": "firing", "labels": {"ip": "192.0.2.0/24"}});
        let alert = serde_json::from_value(range).unwrap();
        assert!(matches!(verdict(&alert, true), Verdict::Ban(_)));
    }

    #[test]
    fn resolved_test_and_addressless_alerts_are_ignored() {
        for alert in [
            json!({"status": "resolved", "labels": {"ip": "192.0.2.7"}}),
            json!({"labels": {"ip": "192.0.2.7"}}),
            json!({"status": "firing", "labels": {"alertname": "TestAlert", "ip": "192.0.2.7"}}),
            json!({"status": "firing", "labels": {"alertname": "DatasourceNoData", "ip": "192.0.2.7"}}),
            json!({"status": "firing", "labels": {"alertname": "X", "instance": "192.0.2.7:9100"}}),
            json!({"status": "firing", "labels": {"ip": ""}}),
            json!({"status": "firing", "labels": {"ip": 7}}),
            json!({"status": "firing", "labels": null}),
            json!({"status": "firing"}),
        ] {
            assert_eq!(judged(&alert), Verdict::Ignored, "{alert}");
        }
    }

    #[test]
    fn duration_and_reason_are_taken_over() {
        let wanted = banned(&json!({
            "status": "firing",
            "labels": {"alertname": "Scan", "ip": "192.0.2.7", "duration": "1h30m"},
            "annotations": {"description": "22 requests\nin a second", "summary": "no"},
            "values": null
        }));
        assert_eq!(wanted.duration.as_deref(), Some("1h30m"));
        assert_eq!(wanted.reason, "Grafana alert: 22 requests in a second");
        let wanted = banned(&json!({
            "status": "firing",
            "labels": {"alertname": "Scan", "ip": "192.0.2.7", "duration": "-5m"},
            "annotations": null
        }));
        assert_eq!(wanted.duration, None);
        assert!(wanted.remark.is_some());
        assert_eq!(wanted.reason, "Grafana alert: Scan");
        let long = "x".repeat(9000);
        let wanted = banned(&json!({
            "status": "firing", "labels": {"ip": "192.0.2.7"}, "annotations": {"summary": long}
        }));
        assert_eq!(
            wanted.reason.len(),
            "Grafana alert: ".len() + LONGEST_REASON
        );
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_label_says_only_an_address_comes_out(label in "[0-9a-fA-F:./\\[\\]%x ]{0,48}") {
            if let Ok(target) = address(label.trim()) {
                proptest::prop_assert_eq!(address(&target.to_string()), Ok(target));
            }
        }

        #[test]
        fn a_port_changes_nothing(bytes in proptest::prelude::any::<[u8; 16]>(), port in 0_u16.., four in proptest::bool::ANY) {
            let (plain, with_port) = if four {
                let v4 = std::net::Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
                (v4.to_string(), format!("{v4}:{port}"))
            } else {
                let v6 = std::net::Ipv6Addr::from(bytes);
                (v6.to_string(), format!("[{v6}]:{port}"))
            };
            proptest::prop_assert_eq!(address(&plain), address(&with_port));
        }

        #[test]
        fn no_payload_makes_the_reader_panic(body in ".{0,200}") {
            let _ = read(body.as_bytes(), true);
        }
    }
}
