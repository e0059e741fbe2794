//! Alertmanager's webhook payload, version 4. Pure.
//!
//! A request is a group of alerts, each with a `status` of its own; the `status` of the group is `firing` while one of
//! them fires. `truncatedAlerts` counts the alerts that `max_alerts` of the receiver left out.

use super::alerts::{Alerts, Unreadable};
use super::labels::{self, Dialect, Labels};

const DIALECT: Dialect = Dialect {
    payload: "Alertmanager webhook payload",
    prefix: "Alertmanager alert: ",
    versions: &["4"],
    ignored: &[],
};

/// Reads a body. `ranges`: whether they may be banned.
pub(super) fn read(body: &[u8], names: &Labels, ranges: bool) -> Result<Alerts, Unreadable> {
    labels::read(body, DIALECT, names, ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::alerts::{MOST_ALERTS, Verdict, Wanted};
    use serde_json::{Value, json};

    fn group(alerts: &[Value]) -> Value {
        json!({
            "version": "4", "groupKey": "{}:{alertname=\"Scan\"}", "truncatedAlerts": 2,
            "status": "firing", "receiver": "ipblock", "groupLabels": {"alertname": "Scan"},
            "commonLabels": {"alertname": "Scan"}, "commonAnnotations": {},
            "externalURL": "http://alertmanager.example:9093", "alerts": alerts,
        })
    }

    fn alert(status: &str, labels: Value) -> Value {
        json!({
            "status": status, "labels": labels,
            "annotations": {"summary": "many failed logins", "duration": "2h"},
            "startsAt": "2026-01-01T00:00:00.123Z", "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus.example/graph", "fingerprint": "c0ffee0123456789"
        })
    }

    fn read_with(alerts: &[Value], names: &Labels) -> Alerts {
        read(group(alerts).to_string().as_bytes(), names, false).unwrap()
    }

    fn bans(alerts: &Alerts) -> Vec<Wanted> {
        let judged = alerts.judged.iter();
        judged
            .filter_map(|judged| match &judged.verdict {
                Verdict::Ban(wanted) => Some(wanted.clone()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn each_alert_of_a_group_counts_with_its_own_status() {
        let alerts = read_with(
            &[
                alert("firing", json!({"alertname": "Scan", "ip": "192.0.2.7"})),
                alert("resolved", json!({"alertname": "Scan", "ip": "192.0.2.8"})),
                alert("firing", json!({"alertname": "Scan"})),
            ],
            &Labels::default(),
        );
        assert_eq!(alerts.left_out, 2);
        let [ban] = bans(&alerts).try_into().unwrap();
        assert_eq!(ban.target.to_string(), "192.0.2.7");
        assert_eq!(ban.reason, "Alertmanager alert: many failed logins");
        assert_eq!(ban.duration.as_deref(), Some("2h"), "from the annotation");
        assert_eq!(ban.alert, "c0ffee0123456789");
        assert!(matches!(alerts.judged[1].verdict, Verdict::Resolved(_)));
        assert!(matches!(alerts.judged[2].verdict, Verdict::Ignored(_)));
        assert_eq!(alerts.judged[2].position, 2);
    }

    #[test]
    fn the_names_of_labels_are_configured_and_the_first_that_an_alert_has_counts() {
        let names = Labels {
            ip: vec!["src".into(), "client".into()],
            duration: vec!["ttl".into()],
            reason: vec!["team".into()],
            by: vec!["team".into()],
        };
        let labels = json!({"ip": "192.0.2.1", "client": "192.0.2.2,192.0.2.3", "ttl": "5m", "team": "edge"});
        let alerts = read_with(&[alert("firing", labels)], &names);
        let bans = bans(&alerts);
        let targets: Vec<String> = bans.iter().map(|ban| ban.target.to_string()).collect();
        assert_eq!(targets, ["192.0.2.2", "192.0.2.3"]);
        assert_eq!(bans[1].duration.as_deref(), Some("5m"));
        assert_eq!(bans[1].reason, "Alertmanager alert: edge");
        assert_eq!(bans[1].by.as_deref(), Some("edge"));
        assert_eq!(alerts.judged[1].position, 0, "both are of the first alert");
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let mut other = group(&[]);
        other["version"] = json!("5");
        let error = read(other.to_string().as_bytes(), &Labels::default(), false).unwrap_err();
        assert!(
            error.to_string().contains("its version is \"5\", not 4"),
            "{error}"
        );
        let grafana = json!({"alerts": [], "version": "1"}).to_string();
        assert!(read(grafana.as_bytes(), &Labels::default(), false).is_err());
    }

    #[test]
    fn alerts_past_the_limit_are_counted_and_resolved_ones_take_no_place_of_a_ban() {
        let list = "192.0.2.7 ".repeat(100);
        let with = |status: &str, count| vec![alert(status, json!({ "ip": list })); count];
        let resolved = with("resolved", MOST_ALERTS / 100 + 1);
        let most = [resolved, with("firing", MOST_ALERTS / 100)].concat();
        let alerts = read_with(&most, &Labels::default());
        assert_eq!((bans(&alerts).len(), alerts.not_read), (MOST_ALERTS, 100));
        let over = [most, with("firing", 1)].concat();
        let alerts = read_with(&over, &Labels::default());
        assert_eq!((bans(&alerts).len(), alerts.not_read), (MOST_ALERTS, 200));
    }

    #[test]
    fn an_alert_without_a_fingerprint_is_known_by_its_labels() {
        let fingerprint = |labels: Value| {
            let mut alert = alert("firing", labels);
            alert.as_object_mut().unwrap().remove("fingerprint");
            let alerts = read_with(&[alert], &Labels::default());
            bans(&alerts)[0].alert.clone()
        };
        let one = fingerprint(json!({"ip": "192.0.2.7", "job": "a"}));
        assert_eq!(one, fingerprint(json!({"job": "a", "ip": "192.0.2.7"})));
        assert_ne!(one, fingerprint(json!({"ip": "192.0.2.7", "job": "b"})));
    }
}
