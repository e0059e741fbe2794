//! docs/operate.md and the alerts against the code: every listed name exists, and every existing one is listed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use crate::api::{Place, Standing};
use crate::config::{self, keys};
use crate::decide::{Cause, Coverage};
use crate::guard::{Held, Scope};
use crate::metrics::Metrics;
use crate::policy::RefusalKind;
use crate::sets::RawEngine;
use crate::trigger::RawTrigger;
use crate::{audit, engine, notify, pulled, sets, trigger};

const GUIDE: &str = include_str!("../docs/operate.md");
const NOTIFICATIONS: &str = include_str!("../docs/notifications.md");
const TRIGGERS: &str = include_str!("../docs/triggers.md");
const ENGINES: &str = include_str!("../docs/engines.md");
const ALERTS: &str = include_str!("../manifests/monitoring/prometheusrule.yaml");
const DASHBOARD: &str = include_str!("../manifests/monitoring/dashboard.json");

/// The rows of the table under `header`, each as its cells.
fn table(header: &str) -> Vec<Vec<&'static str>> {
    table_of(GUIDE, header)
}

fn table_of(page: &'static str, header: &str) -> Vec<Vec<&'static str>> {
    let mut lines = page.lines().skip_while(|line| *line != header);
    assert!(lines.next().is_some(), "the page has a table {header}");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// What is written as code in a cell.
fn code(cell: &'static str) -> Vec<&'static str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn first_column(header: &str) -> BTreeSet<String> {
    let rows = table(header).into_iter();
    rows.flat_map(|row| code(row[0]))
        .map(String::from)
        .collect()
}

const KEYS: &str = "| key | meaning | default |";

#[test]
fn every_key_of_the_configmap_is_documented_and_every_documented_one_exists() {
    let templates =
        ["ban", "resolve", "common"].map(|event| keys::NOTIFY_TEMPLATE_PREFIX.to_owned() + event);
    let known = keys::ALL.iter().chain(keys::NOTIFY);
    let known: BTreeSet<String> = known.map(ToString::to_string).chain(templates).collect();
    assert_eq!(first_column(KEYS), known);
}

#[test]
fn a_documented_default_written_into_the_configmap_changes_nothing() {
    let base: BTreeMap<String, String> = [
        ("engine", "iptables"),
        ("gatewayHost", "192.0.2.250:9521"),
        (
            "trigger",
            "[{name: grafana, addr: ':8090', path: /p, insecure: true}]",
        ),
    ]
    .map(|(key, text)| (key.to_owned(), text.to_owned()))
    .into();
    let read = |data: &BTreeMap<String, String>| {
        config::parse(data, &config::Options::default()).expect("a right configuration")
    };
    let mut checked = 0;
    for row in table(KEYS) {
        for (key, default) in code(row[0]).into_iter().zip(code(row[2])) {
            let mut data = base.clone();
            data.insert(key.to_owned(), default.to_owned());
            assert_eq!(read(&data), read(&base), "{key}: {default}");
            checked += 1;
        }
    }
    assert!(checked >= 9, "only {checked} defaults were found");
}

#[test]
fn every_field_of_a_trigger_is_documented_and_every_documented_one_exists() {
    let unknown = "{name: grafana, addr: ':1', path: /p, '?': 1}";
    let error = serde_saphyr::from_str::<RawTrigger>(unknown).expect_err("an unknown field");
    let serde_saphyr::Error::SerdeUnknownField { expected, .. } = error.without_snippet() else {
        panic!("{error}");
    };
    let known: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    assert_eq!(first_column("| field | meaning | default |"), known);
}

/// The examples of a page that are keys of the ConfigMap: each `yaml` block that begins with one of them.
fn examples(page: &'static str) -> Vec<BTreeMap<String, String>> {
    let blocks = page.split("\n```yaml\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("\n```").next());
    blocks
        .filter(|block| {
            let key = block.split(':').next().unwrap_or_default();
            keys::ALL.contains(&key) || keys::NOTIFY.contains(&key)
        })
        .map(|block| serde_saphyr::from_str(block).expect("keys and texts"))
        .collect()
}

#[test]
fn every_example_of_the_guides_is_a_right_configuration() {
    for (page, least) in [(TRIGGERS, 6), (NOTIFICATIONS, 3)] {
        let examples = examples(page);
        assert!(examples.len() >= least, "{} examples", examples.len());
        for mut data in examples {
            data.insert("engine".into(), "dry-run".into());
            let config = config::parse(&data, &config::Options::default());
            let config = config.unwrap_or_else(|errors| panic!("{data:#?}: {errors}"));
            assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        }
    }
}

#[test]
fn every_field_of_an_engine_is_documented_and_every_documented_one_exists() {
    let unknown = "{name: edge, type: list, '?': 1}";
    let error = serde_saphyr::from_str::<RawEngine>(unknown).expect_err("an unknown field");
    let serde_saphyr::Error::SerdeUnknownField { expected, .. } = error.without_snippet() else {
        panic!("{error}");
    };
    let known: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    let rows = table_of(ENGINES, "| field of `engines` | meaning | default |");
    let fields = rows.into_iter().flat_map(|row| code(row[0]));
    assert_eq!(fields.map(String::from).collect::<BTreeSet<_>>(), known);
}

#[test]
fn every_field_of_a_source_is_documented_and_every_documented_one_exists() {
    let unknown = "{name: a, url: u, '?': 1}";
    let error = serde_saphyr::from_str::<pulled::RawSource>(unknown).expect_err("an unknown field");
    let serde_saphyr::Error::SerdeUnknownField { expected, .. } = error.without_snippet() else {
        panic!("{error}");
    };
    let known: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    let rows = TRIGGERS.lines();
    let rows = rows.skip_while(|line| *line != "| field | meaning | default |");
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_matches('|').split(" | ").next());
    let documented: BTreeSet<String> = cells.flat_map(code).map(String::from).collect();
    assert_eq!(documented, known);
}

#[test]
fn every_field_of_a_channel_is_documented_and_every_documented_one_exists() {
    let unknown = "{type: slack, '?': 1}";
    let error =
        serde_saphyr::from_str::<config::RawChannel>(unknown).expect_err("an unknown field");
    let serde_saphyr::Error::SerdeUnknownField { expected, .. } = error.without_snippet() else {
        panic!("{error}");
    };
    let known: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    let rows = NOTIFICATIONS.lines();
    let rows = rows.skip_while(|line| *line != "| field | for | meaning | default |");
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let documented: BTreeSet<String> = rows
        .filter_map(|row| row.split('`').nth(1))
        .map(String::from)
        .collect();
    assert_eq!(documented, known);
}

/// All metrics of the operator's own, each with a sample.
fn exposed() -> String {
    let mut registry = Registry::default();
    let metrics = Metrics::new();
    let coverage = Arc::new(Mutex::new(Coverage::default()));
    metrics.register(&mut registry, &coverage);
    let standing = Standing {
        target: "192.0.2.7".parse().expect("an address"),
        place: Place::new("xdp", "g:1"),
    };
    coverage.lock().recall("default/a", standing, None);
    metrics.banned(None, true);
    metrics.lifted(Cause::Expired, Some(Duration::ZERO));
    metrics.skipped(RefusalKind::Allowlisted);
    let guard = metrics.guard();
    guard.limited(&Held::Active {
        scope: Scope::All,
        most: 1,
    });
    guard.limited(&Held::Active {
        scope: Scope::engine("xdp", false).unwrap(),
        most: 1,
    });
    guard.shadowed("feed");
    guard.ranges("nodes", 1);
    guard.discovery("nodes", true);
    let engine = engine::Metrics::new();
    engine.register(&mut registry);
    engine.called("xdp", "ban", "ok", Duration::ZERO);
    let sets = sets::Metrics::default();
    sets.register(&mut registry);
    let lists = crate::lists::Metrics::default();
    lists.counted(
        1,
        [("accepted", 1), ("refused", 0), ("ended", 0), ("held", 0)],
    );
    lists.register(&mut registry);
    sets.counted(&"edge".into(), sets::Counts::default());
    sets.batch("edge", true);
    sets.agents("edge", "current", 1);
    sets.readers("edge", 1);
    sets.refused("edge");
    metrics.drift_repaired("xdp", 1);
    let trigger = trigger::Metrics::default();
    trigger.register(&mut registry);
    trigger.answered("grafana", 200);
    trigger.missed("grafana", 0, 0);
    let notify = notify::Metrics::default();
    notify.register(&mut registry);
    notify.count("lark", "sent", 1);
    notify.count("lark", "failed", 1);
    let audit = audit::Metrics::default();
    audit.register(&mut registry);
    audit.written(1);
    let pulled = pulled::Metrics::default();
    pulled.register(&mut registry);
    pulled.pulled("crowdsec", "failed");
    pulled.lists("crowdsec", 1, 0);
    pulled.kept("crowdsec", 1);
    pulled.wrote("crowdsec", "written");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    text
}

/// `name{label,…}` of every metric in `text`, as the documentation writes it.
fn signatures(text: &str) -> BTreeSet<String> {
    let described = text.lines().filter_map(|line| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some(match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        })
    });
    let signature = |name: String| {
        let mut samples = text.lines().filter(|line| {
            line.strip_prefix(&name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']) || rest.starts_with("_count"))
        });
        let sample = samples
            .next()
            .unwrap_or_else(|| panic!("a sample of {name}"));
        let labels: Vec<&str> = sample
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'))
            .map(|(labels, _)| {
                labels
                    .split(',')
                    .filter_map(|it| it.split('=').next())
                    .collect()
            })
            .unwrap_or_default();
        if labels.is_empty() {
            name
        } else {
            format!("{name}{{{}}}", labels.join(","))
        }
    };
    described.map(signature).collect()
}

#[test]
fn every_metric_is_documented_with_its_labels_and_every_documented_one_exists() {
    assert_eq!(
        first_column("| metric | what it counts |"),
        signatures(&exposed())
    );
}

#[test]
fn the_metrics_that_dashboards_rely_on_have_their_names_and_labels() {
    let exposed = signatures(&exposed());
    for signature in [
        "ipblock_active{engine}",
        "ipblock_bans_total{source,result}",
        "ipblock_unbans_total{cause}",
        "ipblock_expiry_lag_seconds",
        "ipblock_engine_request_seconds{engine,op,outcome}",
        "ipblock_drift_repaired_total{engine}",
        "ipblock_skipped_total{reason}",
        "ipblock_webhook_requests_total{trigger,code}",
        "ipblock_debounced_total",
        "ipblock_notifications_total{channel,outcome}",
        "ipblock_config_reloads_total{result}",
    ] {
        assert!(exposed.contains(signature), "{signature}: {exposed:#?}");
    }
}

#[test]
fn every_field_and_action_of_the_audit_log_is_documented_and_the_example_is_a_line() {
    let (fields, actions) = audit::documented();
    assert_eq!(first_column("| field of a line | meaning |"), fields);
    assert_eq!(first_column("| action | when |"), actions);
    let examples = GUIDE.lines().filter(|line| line.starts_with("{\"time\""));
    let mut count = 0;
    for example in examples {
        serde_json::from_str::<audit::Line>(example).expect(example);
        count += 1;
    }
    assert!(count > 0, "docs/operate.md has an example of a line");
}

#[test]
fn every_selector_of_a_metric_in_the_guide_matches_a_sample() {
    every_selector_matches_a_sample(GUIDE);
}

#[test]
fn every_selector_of_a_metric_in_the_alerts_matches_a_sample() {
    let lines = ALERTS.lines();
    let queries: Vec<&str> = lines.filter(|line| !line.contains("runbook_url")).collect();
    every_selector_matches_a_sample(&queries.join("\n"));
}

#[test]
fn every_selector_of_a_metric_on_the_dashboard_matches_a_sample() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    // The matchers of the dashboard's variables are those of Prometheus.
    let variables = r#"namespace=~"$namespace", job=~"$job""#;
    let queries: Vec<String> = targets
        .map(|target| target["expr"].as_str().expect("a query"))
        // Those of the agents are checked by the agent's tests.
        .filter(|query| !query.contains("ipblock_agent_"))
        .map(|query| {
            query
                .replace(&format!("{variables}, "), "")
                .replace(variables, "")
        })
        .collect();
    assert!(queries.len() > 20, "only {} queries", queries.len());
    every_selector_matches_a_sample(&queries.join("\n"));
}

fn every_selector_matches_a_sample(page: &str) {
    let text = exposed();
    let names: BTreeSet<String> = signatures(&text)
        .iter()
        .map(|signature| signature.split('{').next().unwrap_or_default().to_owned())
        .collect();
    let mut checked = 0;
    for (at, _) in page.match_indices("ipblock_") {
        let rest = &page[at..];
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_lowercase());
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let base = ["_count", "_bucket", "_sum"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        assert!(names.contains(base), "there is no metric {name}");
        let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let Some((selector, _)) = selector.filter(|(selector, _)| selector.contains('=')) else {
            continue;
        };
        let (label, value) = selector.split_once('=').unwrap_or_default();
        let label = label.trim_end_matches('!');
        let selected = format!("{label}={value}");
        let samples = text.lines().filter(|line| line.starts_with(base));
        assert!(
            samples.clone().any(|line| line.contains(&selected)),
            "{name} never has {selected}; there are {:#?}",
            samples.collect::<Vec<_>>()
        );
        checked += 1;
    }
    assert!(checked >= 3, "only {checked} selectors were found");
}
