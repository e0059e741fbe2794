//! Grafana's webhook payload. Pure.

use super::alerts::{Alerts, Unreadable};
use super::labels::{self, Dialect, Labels};

/// Names of alerts that are not about an address: the test button, and rules without data.
const IGNORED: &[&str] = &["TestAlert", "DatasourceNoData", "DatasourceError"];

const DIALECT: Dialect = Dialect {
    payload: "Grafana webhook payload",
    prefix: "Grafana alert: ",
    versions: &[],
    ignored: IGNORED,
};

/// Reads a body. `ranges`: whether they may be banned.
pub(super) fn read(body: &[u8], names: &Labels, ranges: bool) -> Result<Alerts, Unreadable> {
    labels::read(body, DIALECT, names, ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::alerts::{Verdict, Wanted};
    use serde_json::{Value, json};

    fn judged_with(alert: &Value, ranges: bool) -> Verdict {
        let body = json!({ "alerts": [alert] }).to_string();
        let alerts = read(body.as_bytes(), &Labels::default(), ranges).unwrap();
        assert_eq!(alerts.judged.len(), 1, "{alert}");
        alerts.judged[0].verdict.clone()
    }

    fn judged(alert: &Value) -> Verdict {
        judged_with(alert, false)
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
        assert!(matches!(judged_with(&range, true), Verdict::Ban(_)));
    }

    #[test]
    fn test_alerts_and_those_without_an_address_are_ignored() {
        for alert in [
            json!({"status": "resolved", "labels": {"ip": "example.com"}}),
            json!({"labels": {"ip": "192.0.2.7"}}),
            json!({"status": "firing", "labels": {"alertname": "TestAlert", "ip": "192.0.2.7"}}),
            json!({"status": "firing", "labels": {"alertname": "DatasourceNoData", "ip": "192.0.2.7"}}),
            json!({"status": "firing", "labels": {"alertname": "X", "instance": "192.0.2.7:9100"}}),
            json!({"status": "firing", "labels": {"ip": ""}}),
            json!({"status": "firing", "labels": {"ip": 7}}),
            json!({"status": "firing", "labels": null}),
            json!({"status": "firing"}),
        ] {
            let verdict = judged(&alert);
            assert!(
                matches!(verdict, Verdict::Ignored(_)),
                "{alert}: {verdict:?}"
            );
        }
    }

    #[test]
    fn a_resolved_alert_names_its_address() {
        let resolved = judged(
            &json!({"status": "resolved", "labels": {"ip": "192.0.2.7:80"}, "fingerprint": "f1"}),
        );
        let Verdict::Resolved(resolved) = resolved else {
            panic!("{resolved:?}");
        };
        assert_eq!(resolved.target.to_string(), "192.0.2.7");
        assert_eq!(
            (resolved.raw.as_str(), resolved.alert.as_str()),
            ("192.0.2.7:80", "f1")
        );
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
        assert_eq!(wanted.reason.len(), "Grafana alert: ".len() + 1024);
    }

    proptest::proptest! {
        #[test]
        fn no_payload_makes_the_reader_panic(body in ".{0,200}") {
            let _ = read(body.as_bytes(), &Labels::default(), true);
        }
    }
}
