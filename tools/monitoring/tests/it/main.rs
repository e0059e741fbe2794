//! The dashboard and the alerts against the metrics of a running program, and against their guide.

mod exported;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use monitoring::dashboard::{OPERATOR, PROGRAMS};
use monitoring::promql::{self, Parts};
use monitoring::{panels, rules};

use exported::{Exported, exported};

/// Labels that Prometheus adds to each series of a target.
const TARGET_LABELS: [&str; 3] = ["namespace", "job", "instance"];
/// Metrics that Prometheus records for each target.
const TARGET_METRICS: [&str; 1] = ["up"];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

/// One scrape for all tests.
static EXPORTED: LazyLock<Exported> = LazyLock::new(exported);

/// What is wrong with the names of `parts`.
fn wrong(parts: &Parts, exported: &Exported) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut known: BTreeSet<&str> = TARGET_LABELS.into();
    for selector in &parts.selectors {
        let metric = selector.metric.as_str();
        if TARGET_METRICS.contains(&metric) {
            continue;
        }
        let Some(labels) = exported
            .family(metric)
            .and_then(|_| exported.series.get(metric))
        else {
            wrong.push(format!("no program exports {metric}"));
            continue;
        };
        known.extend(labels.keys().map(String::as_str));
        for (label, operator, value) in &selector.matchers {
            if TARGET_LABELS.contains(&label.as_str()) {
                continue;
            }
            let Some(values) = labels.get(label) else {
                wrong.push(format!("{metric} has no label {label}"));
                continue;
            };
            // Every value of these labels is exported from the start.
            let closed = ["activity", "reason", "result"].contains(&label.as_str());
            let unknown = value.split('|').find(|value| !values.contains(*value));
            if let Some(unknown) = unknown.filter(|_| closed && operator != "!=") {
                wrong.push(format!("{metric} never has {label}=\"{unknown}\""));
            }
        }
    }
    let unknown = parts
        .labels
        .iter()
        .filter(|label| !known.contains(label.as_str()));
    wrong.extend(unknown.map(|label| format!("no metric of the query has the label {label}")));
    wrong
}

#[test]
fn every_metric_and_label_of_the_dashboard_and_the_alerts_is_exported() {
    let exported = &*EXPORTED;
    let panels = PROGRAMS.expressions();
    let alerts = SETS[0]
        .alerts()
        .into_iter()
        .map(|alert| (alert.alert, alert.expr));
    let mut checked = 0;
    for (place, query) in panels.into_iter().chain(alerts) {
        let parts = promql::parts(&query);
        assert!(
            !parts.selectors.is_empty(),
            "{place} reads no metric: {query}"
        );
        let wrong = wrong(&parts, exported);
        assert!(wrong.is_empty(), "{place}: {wrong:#?}\nin {query}");
        checked += 1;
    }
    assert!(checked > 80, "only {checked} queries");
}

#[test]
fn a_query_of_a_metric_or_label_that_nothing_exports_is_found() {
    let exported = &*EXPORTED;
    for (query, expected) in [
        (
            "rate(workqueue_adds[5m])",
            "no program exports workqueue_adds",
        ),
        (
            "workqueue_depth{queue=\"a\"}",
            "workqueue_depth has no label queue",
        ),
        (
            "reflector_failures_total{reason=\"watches\"}",
            "reflector_failures_total never has reason=\"watches\"",
        ),
        (
            "sum by (handler) (informer_objects)",
            "no metric of the query has the label handler",
        ),
    ] {
        assert_eq!(wrong(&promql::parts(query), exported), [expected]);
    }
}

#[test]
fn every_exported_family_is_on_the_dashboard_or_has_a_reason_to_be_left_out() {
    let exported = &*EXPORTED;
    let queries = PROGRAMS.expressions().into_iter();
    let selectors = queries.flat_map(|(_, query)| promql::parts(&query).selectors);
    let metrics: Vec<String> = selectors.map(|selector| selector.metric).collect();
    let shown: BTreeSet<&str> = metrics
        .iter()
        .filter_map(|metric| exported.family(metric))
        .collect();
    let left_out = panels::NOT_SHOWN.map(|(family, _)| family);
    let both = left_out.iter().find(|family| shown.contains(**family));
    assert_eq!(both, None, "it is on the dashboard");
    let listed: BTreeSet<&str> = shown.into_iter().chain(left_out).collect();
    let families: BTreeSet<&str> = exported.families.keys().map(String::as_str).collect();
    assert_eq!(listed, families);
}

#[test]
fn every_family_of_the_runtime_is_exported_by_the_program_of_these_tests() {
    let exported = &*EXPORTED;
    let contract = include_str!("../../../../controller/testdata/metrics.txt");
    let families = contract
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    for family in families {
        let (name, kind) = family.split_once(' ').expect("a name and a type");
        let total = format!("{name}_total");
        let name = if kind == "counter" { &total } else { name };
        assert!(exported.families.contains_key(name), "{name}");
    }
}

#[test]
fn the_dashboards_are_those_of_the_tables_of_panels() {
    for dashboard in [PROGRAMS, OPERATOR] {
        let written = std::fs::read_to_string(file(dashboard.file)).expect("a file");
        assert_eq!(written, dashboard.text(), "run `cargo run -p monitoring`");
    }
}

/// The operator's own metrics are checked by its tests.
#[test]
fn every_metric_of_the_runtime_on_the_dashboard_of_the_operator_is_exported() {
    let exported = &*EXPORTED;
    let mut checked = 0;
    for (place, query) in OPERATOR.expressions() {
        let mut parts = promql::parts(&query);
        parts.labels.clear();
        parts
            .selectors
            .retain(|selector| !selector.metric.starts_with("ipblock_"));
        // The name of a lease is the program's own.
        for selector in &mut parts.selectors {
            selector.matchers.retain(|(label, ..)| label != "name");
        }
        let wrong = wrong(&parts, exported);
        assert!(wrong.is_empty(), "{place}: {wrong:#?}\nin {query}");
        checked += parts.selectors.len();
    }
    assert!(checked >= 2, "only {checked} metrics");
}

#[test]
fn the_chart_has_the_alerts_and_the_dashboards() {
    for (chart, source) in [
        (
            "prometheusrule.yaml",
            "manifests/monitoring/prometheusrule.yaml",
        ),
        (
            "prometheusrule-agent.yaml",
            "manifests/agent/monitoring/prometheusrule.yaml",
        ),
        (
            "prometheusrule-programs.yaml",
            "controller/monitoring/prometheusrule.yaml",
        ),
        ("dashboard.json", OPERATOR.file),
        ("dashboard-programs.json", PROGRAMS.file),
    ] {
        let read = |name: &str| std::fs::read_to_string(file(name)).expect("a file");
        assert!(
            read(&format!("charts/ipblock-operator/files/{chart}")) == read(source),
            "{chart} is not current: run `.ci/chart files`"
        );
    }
}

/// Files of alerts, with the page of their sections and its address.
struct Set {
    folders: &'static [&'static str],
    page: &'static str,
    address: &'static str,
}

const SETS: [Set; 2] = [
    Set {
        folders: &["controller/monitoring"],
        page: "controller/guide/monitoring.md",
        address: "https://docs.rs/reeve-controller/latest/reeve_controller/guide/monitoring/",
    },
    Set {
        folders: &["manifests/monitoring", "manifests/agent/monitoring"],
        page: "docs/runbook.md",
        address: "https://docs.rs/ipblock-operator/latest/ipblock_operator/runbook/",
    },
];

/// The alerts that fire at once: lifts are held for less than two minutes, and the other one counts within an hour.
const AT_ONCE: [&str; 2] = ["IPBlockAgentLiftsHeld", "IPBlockAgentTableRemoved"];

// === impl Set ===

impl Set {
    fn alerts(&self) -> Vec<rules::Alert> {
        let files = self.folders.iter();
        let files = files.map(|folder| file(folder).join("prometheusrule.yaml"));
        files
            .flat_map(|path| rules::alerts(&path).expect("alerts"))
            .collect()
    }

    /// The cases for promtool.
    fn tests(&self) -> Vec<serde_json::Value> {
        let mut all = Vec::new();
        for folder in self.folders {
            let path = file(folder).join("prometheusrule.test.yaml");
            let text = std::fs::read_to_string(path).expect("the tests of the alerts");
            let tests: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
            all.extend(tests["tests"].as_array().expect("tests").iter().cloned());
        }
        all
    }
}

#[test]
fn every_alert_has_its_texts_and_a_section_of_its_page() {
    for set in SETS {
        let page = std::fs::read_to_string(file(set.page)).expect("the page");
        let sections: BTreeSet<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .collect();
        let alerts = set.alerts();
        let names: BTreeSet<&str> = alerts.iter().map(|alert| alert.alert.as_str()).collect();
        assert_eq!(
            names, sections,
            "the alerts, and the headings `### …` of {}",
            set.page
        );
        assert_eq!(names.len(), alerts.len(), "no name is there twice");
        for alert in &alerts {
            let name = &alert.alert;
            let severity = alert.labels.get("severity").map(String::as_str);
            assert!(matches!(severity, Some("critical" | "warning")), "{name}");
            match alert.held.as_deref() {
                Some(held) => assert!(held.ends_with('m'), "{name} waits {held}"),
                None => assert!(AT_ONCE.contains(&name.as_str()), "{name} does not wait"),
            }
            let texts = &alert.annotations;
            assert!(
                texts["summary"].contains("{{ $"),
                "{name} names the program"
            );
            assert!(
                texts["description"].contains("{{ $"),
                "{name} has numbers or names"
            );
            let expected = format!("{}#{}", set.address, name.to_lowercase());
            assert_eq!(texts["runbook_url"], expected);
        }
    }
}

#[test]
fn every_alert_is_tested_to_fire_and_not_to_fire() {
    for set in SETS {
        let tests = set.tests();
        let (mut fires, mut rests) = (BTreeSet::new(), BTreeSet::new());
        for test in &tests {
            for case in test["alert_rule_test"].as_array().into_iter().flatten() {
                let name = case["alertname"].as_str().expect("a name").to_owned();
                let expected = case["exp_alerts"].as_array();
                if expected.is_some_and(|alerts| !alerts.is_empty()) {
                    fires.insert(name);
                } else {
                    rests.insert(name);
                }
            }
        }
        let names: BTreeSet<String> = set.alerts().into_iter().map(|alert| alert.alert).collect();
        assert_eq!(fires, names, "the alerts that fire in a test");
        assert_eq!(rests, names, "the alerts that do not fire in a test");
    }
}
