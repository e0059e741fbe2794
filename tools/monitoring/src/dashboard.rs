//! The dashboards as Grafana imports them, made of the tables of panels.

use serde_json::{Value, json};

use crate::panels::{Form, OPERATOR_ROWS, Panel, ROWS, Row};

/// The width of a dashboard in Grafana's grid.
const COLUMNS: u32 = 24;

/// A dashboard.
#[derive(Debug)]
pub struct Dashboard {
    /// Its file, from the top of the repository.
    pub file: &'static str,
    uid: &'static str,
    title: &'static str,
    description: &'static str,
    tags: &'static [&'static str],
    /// A metric that each of its programs has from its start, and no other program.
    family: &'static str,
    /// Whether a controller of the program can be chosen.
    controllers: bool,
    rows: &'static [Row],
}

/// Every program made with Reeve. No other library exports its family.
pub const PROGRAMS: Dashboard = Dashboard {
    file: "controller/monitoring/dashboard.json",
    uid: "reeve-programs",
    title: "Reeve programs",
    description: "Controllers, queues, informers and leader election of programs made with Reeve.",
    tags: &["reeve", "kubernetes", "controller-runtime"],
    family: "reeve_reconcile_given_up_total",
    controllers: true,
    rows: &ROWS,
};

/// The IPBlock operator.
pub const OPERATOR: Dashboard = Dashboard {
    file: "manifests/monitoring/dashboard.json",
    uid: "ipblock-operator",
    title: "IPBlock operator",
    description: "Bans and lifts, the gateway, alerts and notifications of the IPBlock operator.",
    tags: &["ipblock-operator", "kubernetes", "security"],
    family: "ipblock_config_reloads_total",
    controllers: false,
    rows: &OPERATOR_ROWS,
};

// === impl Form ===

impl Form {
    fn width(self) -> u32 {
        match self {
            Self::Graph => 8,
            Self::Number | Self::Faults | Self::Share => 4,
        }
    }

    fn height(self) -> u32 {
        match self {
            Self::Graph => 8,
            Self::Number | Self::Faults | Self::Share => 4,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Graph => "timeseries",
            Self::Number | Self::Faults | Self::Share => "stat",
        }
    }

    fn thresholds(self) -> Value {
        let step = |color: &str, from: Option<f64>| json!({"color": color, "value": from});
        let steps = match self {
            Self::Graph | Self::Number => vec![step("blue", None)],
            // `increase` extrapolates, so a count may be a little above zero.
            Self::Faults => vec![step("green", None), step("red", Some(0.5))],
            Self::Share => vec![
                step("green", None),
                step("yellow", Some(0.01)),
                step("red", Some(0.1)),
            ],
        };
        json!({"mode": "absolute", "steps": steps})
    }

    fn options(self) -> Value {
        match self {
            Self::Graph => json!({
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            Self::Number | Self::Faults | Self::Share => json!({
                "colorMode": "value",
                "graphMode": "area",
                "justifyMode": "auto",
                "orientation": "auto",
                "textMode": "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
            }),
        }
    }
}

/// `query` with the label matchers of the dashboard's variables.
fn selecting(query: &str) -> String {
    const PROGRAM: &str = r#"namespace=~"$namespace", job=~"$job""#;
    query
        .replace(
            "$selected",
            &format!(r#"{PROGRAM}, controller=~"$controller""#),
        )
        .replace("$program", PROGRAM)
        // Agents are scraped by another job.
        .replace("$namespaced", r#"namespace=~"$namespace""#)
}

// === impl Dashboard ===

impl Dashboard {
    /// Every query of a panel as PromQL without variables: every program, over five minutes.
    #[must_use]
    pub fn expressions(&self) -> Vec<(String, String)> {
        let panels = self
            .rows
            .iter()
            .flat_map(|row| row.panels.iter().map(move |panel| (row, panel)));
        let queries = panels.flat_map(|(row, panel)| {
            panel.queries.iter().map(move |(query, _)| {
                let mut text = selecting(query).replace("$__rate_interval", "5m");
                for variable in ["$namespace", "$job", "$controller"] {
                    text = text.replace(variable, ".*");
                }
                (format!("{}: {}", row.title, panel.title), text)
            })
        });
        queries.collect()
    }

    /// The dashboard's JSON, with a line feed at the end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{:#}", self.json());
        text.push('\n');
        text
    }

    fn json(&self) -> Value {
        json!({
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": self.tags,
            "schemaVersion": 39,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "",
            "annotations": {"list": []},
            "links": [],
            "templating": {"list": self.variables()},
            "panels": panels(self.rows),
        })
    }

    /// Programs are found by their family.
    fn variables(&self) -> Vec<Value> {
        let family = self.family;
        let query = |name: &str, label: &str, selector: &str, all: Option<&str>| {
            json!({
                "name": name,
                "label": label,
                "type": "query",
                "datasource": source(),
                "definition": format!("label_values({family}{selector}, {name})"),
                "query": {
                    "query": format!("label_values({family}{selector}, {name})"),
                    "refId": format!("variable-{name}"),
                },
                "refresh": 2,
                "sort": 1,
                "multi": true,
                "includeAll": true,
                "allValue": all,
                "current": {"text": ["All"], "value": ["$__all"]},
                "options": [],
            })
        };
        let mut variables = vec![
            json!({
                "name": "datasource",
                "label": "Data source",
                "type": "datasource",
                "query": "prometheus",
                "refresh": 1,
                "current": {},
                "options": [],
            }),
            // A Prometheus outside of a cluster sets no namespace.
            query("namespace", "Namespace", "", Some(".*")),
            query("job", "Program", r#"{namespace=~"$namespace"}"#, None),
        ];
        if self.controllers {
            let selector = r#"{namespace=~"$namespace", job=~"$job"}"#;
            variables.push(query("controller", "Controller", selector, Some(".*")));
        }
        variables
    }
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn panels(rows: &[Row]) -> Vec<Value> {
    let mut panels = Vec::new();
    let mut top = 0;
    for row in rows {
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "row",
            "title": row.title,
            "collapsed": false,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
            "panels": [],
        }));
        top += 1;
        let mut left = 0;
        let mut height = 0;
        for shown in row.panels {
            if left + shown.form.width() > COLUMNS {
                (left, top) = (0, top + height);
            }
            height = shown.form.height();
            panels.push(panel(shown, panels.len() + 1, left, top));
            left += shown.form.width();
        }
        top += height;
    }
    panels
}

fn panel(panel: &Panel, id: usize, left: u32, top: u32) -> Value {
    let form = panel.form;
    let targets = panel
        .queries
        .iter()
        .zip('A'..)
        .map(|((query, legend), id)| {
            json!({
                "refId": id.to_string(),
                "datasource": source(),
                "editorMode": "code",
                "expr": selecting(query),
                "legendFormat": legend,
                "range": true,
            })
        });
    json!({
        "id": id,
        "type": form.kind(),
        "title": panel.title,
        "description": panel.about,
        "datasource": source(),
        "gridPos": {"h": form.height(), "w": form.width(), "x": left, "y": top},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": if panel.unit == "none" { Value::Null } else { json!(0) },
                "thresholds": form.thresholds(),
                "color": {"mode": if form == Form::Graph { "palette-classic" } else { "thresholds" }},
            },
            "overrides": [],
        },
        "options": form.options(),
        "targets": targets.collect::<Vec<_>>(),
    })
}
