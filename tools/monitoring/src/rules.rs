//! The alerts of a `PrometheusRule`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// An alert.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    /// Its name.
    pub alert: String,
    /// PromQL, true while something is wrong.
    pub expr: String,
    /// How long it has to be true; `None`: it fires at once.
    #[serde(rename = "for")]
    pub held: Option<String>,
    /// `severity`.
    pub labels: BTreeMap<String, String>,
    /// Texts for people.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Alert>,
}

/// The part of the object `file` that Prometheus reads itself: `groups`.
///
/// # Errors
/// If the file is not a `PrometheusRule` in YAML.
pub fn groups(file: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file:?}: {error}"))?;
    let object: Value =
        serde_saphyr::from_str(&text).map_err(|error| format!("{file:?}: {error}"))?;
    if object["kind"] != "PrometheusRule" {
        return Err(format!("{file:?} is not a PrometheusRule"));
    }
    Ok(object["spec"].clone())
}

/// The alerts of the object `file`.
///
/// # Errors
/// If the file is not a `PrometheusRule`, or a rule has another form than the alerts of this repository.
pub fn alerts(file: &Path) -> Result<Vec<Alert>, String> {
    let groups: Vec<Group> = serde_json::from_value(groups(file)?["groups"].take())
        .map_err(|error| format!("{file:?}: {error}"))?;
    Ok(groups.into_iter().flat_map(|group| group.rules).collect())
}
