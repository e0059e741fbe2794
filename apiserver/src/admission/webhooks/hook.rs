//! One webhook of a configuration, read once.

use std::time::Duration;

use serde_json::Value;

use super::backend::Backend;
use crate::cel::Condition;
use crate::selector::LabelSelector;
use crate::table::cells::{items, string};

/// The time for an answer, where the configuration has none. (admissionregistration/v1: default of `timeoutSeconds`.)
const TIMEOUT: i64 = 10;

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    /// The entry of the configuration.
    pub(super) source: Value,
    pub(super) configuration: String,
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    /// Whether a failed call lets the write pass.
    pub(super) ignores_failures: bool,
    /// Whether rules also match the other versions of their resources.
    pub(super) is_equivalent: bool,
    pub(super) namespaces: Result<LabelSelector, String>,
    pub(super) objects: Result<LabelSelector, String>,
    pub(super) conditions: Vec<Condition>,
    /// Whether it is asked again after a later one changed the object.
    pub(super) reinvoked: bool,
    /// Whether it has no effects of its own on a dry run.
    pub(super) takes_dry_runs: bool,
    pub(super) timeout: Duration,
    /// The version of AdmissionReview, if the webhook reads one that the server writes.
    pub(super) version: Option<ReviewVersion>,
    pub(super) backend: Backend,
}

/// The versions of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

/// Operations and resources that a webhook is asked about.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) operations: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) versions: Vec<String>,
    /// `RESOURCE` or `RESOURCE/SUBRESOURCE`.
    pub(super) resources: Vec<String>,
    pub(super) scope: Scope,
}

/// The scope of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    Namespaced,
    Cluster,
}

// === impl Hook ===

impl Hook {
    /// Reads the entry `source` of the configuration `configuration`.
    pub(super) fn read(configuration: &str, source: &Value) -> Self {
        let selector = |field: &str| {
            LabelSelector::from_value(&source[field]).map_err(|error| error.to_string())
        };
        let seconds = source["timeoutSeconds"].as_i64().unwrap_or(TIMEOUT);
        Self {
            configuration: configuration.to_owned(),
            name: string(&source["name"]).to_owned(),
            rules: items(&source["rules"]).iter().map(Rule::read).collect(),
            ignores_failures: source["failurePolicy"] == "Ignore",
            is_equivalent: source["matchPolicy"] != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            conditions: Condition::read_all(&source["matchConditions"]),
            reinvoked: source["reinvocationPolicy"] == "IfNeeded",
            takes_dry_runs: matches!(string(&source["sideEffects"]), "None" | "NoneOnDryRun"),
            timeout: Duration::from_secs(seconds.clamp(1, 30).unsigned_abs()),
            version: items(&source["admissionReviewVersions"])
                .iter()
                .find_map(ReviewVersion::read),
            backend: Backend::read(&source["clientConfig"]),
            source: source.clone(),
        }
    }

    /// Whether it was read from this entry.
    pub(super) fn is_of(&self, configuration: &str, source: &Value) -> bool {
        self.configuration == configuration && self.source == *source
    }
}

// === impl ReviewVersion ===

impl ReviewVersion {
    fn read(version: &Value) -> Option<Self> {
        match version.as_str()? {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    /// `apiVersion` of the review.
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

// === impl Rule ===

impl Rule {
    fn read(source: &Value) -> Self {
        let texts = |field: &str| {
            let texts = items(&source[field]).iter();
            texts.map(|text| string(text).to_owned()).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: match string(&source["scope"]) {
                "Namespaced" => Scope::Namespaced,
                "Cluster" => Scope::Cluster,
                _ => Scope::All,
            },
        }
    }
}
