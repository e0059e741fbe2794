//! One webhook of a configuration, read once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::admission::matching::Matcher;
use crate::cel::Conditions;
use crate::table::cells::{items, string};
use crate::webhooks::Backend;

/// The time for an answer, where the configuration has none. (admissionregistration/v1: default of `timeoutSeconds`.)
const TIMEOUT: i64 = 10;

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    /// The entry of the configuration.
    pub(super) source: Value,
    pub(super) configuration: String,
    pub(super) name: String,
    pub(super) matcher: Matcher,
    /// Whether a failed call lets the write pass.
    pub(super) ignores_failures: bool,
    pub(super) conditions: Conditions,
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

// === impl Hook ===

impl Hook {
    /// Reads the entry `source` of the configuration `configuration`.
    pub(super) fn read(configuration: &str, source: &Value) -> Self {
        let seconds = source["timeoutSeconds"].as_i64().unwrap_or(TIMEOUT);
        Self {
            configuration: configuration.to_owned(),
            name: string(&source["name"]).to_owned(),
            matcher: Matcher::of_webhook(source),
            ignores_failures: source["failurePolicy"] == "Ignore",
            conditions: Conditions::read(&source["matchConditions"], &Arc::default()),
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

    /// The version as its group names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
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
