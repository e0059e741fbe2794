//! The reports as this version reads them. Unknown fields are ignored and missing ones have defaults, because program and
//! plugin may have different versions.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// All reports of one program.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) instance: Option<String>,
    /// The time of the report by the program's clock.
    pub(crate) time: Option<Timestamp>,
    pub(crate) problems: Section<Problem>,
    pub(crate) controllers: Section<Controller>,
    pub(crate) queues: Section<Queue>,
    pub(crate) informers: Section<Informer>,
    pub(crate) election: Section<Election>,
    pub(crate) writes: Section<Writes>,
}

/// The reports of one part of the program.
#[derive(Debug)]
pub(crate) enum Section<T> {
    Served(Vec<T>),
    /// The program's version does not serve it.
    Missing,
    /// This version cannot read it.
    Unreadable(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Problem {
    pub(crate) severity: String,
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Controller {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    pub(crate) state: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) workers: u64,
    pub(crate) busy: u64,
    pub(crate) reconciles: Reconciles,
    pub(crate) panics: u64,
    pub(crate) last_success: Option<Timestamp>,
    pub(crate) longest_run: Option<Run>,
    pub(crate) sources: Vec<Source>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reconciles {
    pub(crate) success: u64,
    pub(crate) error: u64,
    pub(crate) requeue: u64,
    pub(crate) requeue_after: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Run {
    pub(crate) key: String,
    pub(crate) since: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) watch: bool,
    pub(crate) state: String,
    pub(crate) cause: String,
    pub(crate) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) ready: u64,
    pub(crate) waiting: u64,
    pub(crate) awaiting_token: u64,
    pub(crate) in_flight: u64,
    pub(crate) failing: u64,
    pub(crate) items: Vec<Item>,
    pub(crate) more: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Item {
    pub(crate) key: String,
    pub(crate) state: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) again: bool,
    pub(crate) priority: i64,
    pub(crate) failures: u64,
    pub(crate) last_error: Option<Message>,
    pub(crate) reasons: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Message {
    pub(crate) message: String,
    pub(crate) class: String,
    pub(crate) since: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Informer {
    pub(crate) cluster: Option<String>,
    pub(crate) name: String,
    pub(crate) synced: bool,
    pub(crate) activity: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) failure: Option<Message>,
    pub(crate) last_heard: Option<Timestamp>,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) queued: u64,
    pub(crate) quarantined: u64,
    pub(crate) quarantined_objects: Vec<Quarantined>,
    pub(crate) handlers: Vec<Handler>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Quarantined {
    pub(crate) key: String,
    pub(crate) error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Handler {
    pub(crate) name: String,
    pub(crate) synced: bool,
    pub(crate) backlog: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
    pub(crate) panics: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Election {
    pub(crate) lease: String,
    pub(crate) identity: String,
    pub(crate) state: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) holder: Option<String>,
    pub(crate) renewals: u64,
    pub(crate) last_renewal: Option<Timestamp>,
    pub(crate) last_error: Option<Message>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Writes {
    pub(crate) controller: String,
    pub(crate) keys: u64,
    pub(crate) oldest: Option<Timestamp>,
    pub(crate) hidden: u64,
    pub(crate) kinds: Vec<KindOfWrites>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct KindOfWrites {
    pub(crate) kind: String,
    pub(crate) writes: u64,
    pub(crate) unknown: u64,
}

// === impl Report ===

impl Report {
    pub(crate) fn of(document: &Value) -> Self {
        let text = |name: &str| Some(document.get(name)?.as_str()?.to_owned());
        Self {
            instance: text("instance"),
            time: text("time").and_then(|time| time.parse().ok()),
            problems: Section::of(document, "problems"),
            controllers: Section::of(document, "controllers"),
            queues: Section::of(document, "queues"),
            informers: Section::of(document, "informers"),
            election: Section::of(document, "election"),
            writes: Section::of(document, "writes"),
        }
    }

    /// Whether this program holds a lease.
    pub(crate) fn leads(&self) -> bool {
        let Section::Served(elections) = &self.election else {
            return false;
        };
        elections.iter().any(|election| election.state == "leading")
    }
}

impl Report {
    /// Whether all of its sections can be read, and have nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.problems.is_empty()
            && self.controllers.is_empty()
            && self.queues.is_empty()
            && self.informers.is_empty()
            && self.election.is_empty()
            && self.writes.is_empty()
    }
}

// === impl Section ===

impl<T: DeserializeOwned> Section<T> {
    fn of(document: &Value, name: &str) -> Self {
        match document.get(name) {
            None => Self::Missing,
            Some(reports) => match Vec::<T>::deserialize(reports) {
                Ok(reports) => Self::Served(reports),
                Err(error) => Self::Unreadable(error.to_string()),
            },
        }
    }
}

impl<T> Section<T> {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Served(reports) if reports.is_empty())
    }

    /// Keeps the reports that `is_shown`.
    pub(crate) fn retain(&mut self, is_shown: impl Fn(&T) -> bool) {
        if let Self::Served(reports) = self {
            reports.retain(is_shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_of_another_version_is_read_as_far_as_it_goes() {
        let report = Report::of(&json!({
            "queues": [{"name": "a", "ready": 3, "invented": {"later": true}}],
            "informers": "renamed",
            "election": [],
            "news": [1],
        }));
        let Section::Served(queues) = &report.queues else {
            panic!("{report:?}");
        };
        assert_eq!((queues[0].name.as_str(), queues[0].ready), ("a", 3));
        assert!(
            matches!(report.informers, Section::Unreadable(_)),
            "{report:?}"
        );
        assert!(matches!(report.writes, Section::Missing), "{report:?}");
        assert!(!report.leads());
    }
}
