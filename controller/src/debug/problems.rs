//! What a person should look at first.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::controllers::{ControllerReport, SourceReport, SourceState};
use super::election::ElectionReport;
use super::informers::InformerReport;
use super::page::{one_line, span};
use super::queues::{ItemReport, QueueReport};
use super::writes::WritesReport;

/// A reconcile that runs for longer is a problem.
const LONG_RUN: SignedDuration = SignedDuration::from_mins(5);
/// A controller or an informer that starts for longer is a problem.
const LONG_START: SignedDuration = SignedDuration::from_secs(10);
/// A lease that was renewed before that time is a problem: two renewals at the default period, with a margin.
const LATE_RENEWAL: SignedDuration = SignedDuration::from_secs(5);
/// A handler with more waiting events is a problem.
const LARGE_BACKLOG: usize = 1_000;
/// The most bytes of an error in a problem.
const EXCERPT: usize = 300;

/// A problem that the reports show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Problem {
    /// Its severity.
    pub severity: Severity,
    /// The part of the program.
    pub section: Section,
    /// The name of the controller, queue, informer or lease.
    pub name: String,
    /// What is wrong.
    pub message: String,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Severity {
    /// Objects are not handled, or the program does not see their changes.
    Error,
    /// It may pass by itself, or was over before.
    Warning,
}

/// A part of the program, with a page of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Section {
    /// `/debug/controllers`.
    Controllers,
    /// `/debug/queues`.
    Queues,
    /// `/debug/informers`.
    Informers,
    /// `/debug/election`.
    Election,
    /// `/debug/writes`.
    Writes,
}

/// Collects the problems of reports.
pub(super) struct Problems {
    now: Timestamp,
    found: Vec<Problem>,
}

// === impl Problems ===

impl Problems {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            now,
            found: Vec::new(),
        }
    }

    /// All of them, errors first.
    pub(super) fn sorted(mut self) -> Vec<Problem> {
        self.found
            .sort_by_key(|problem| (problem.severity, problem.section));
        self.found
    }

    fn push(&mut self, severity: Severity, section: Section, name: &str, message: String) {
        self.found.push(Problem {
            severity,
            section,
            name: name.to_owned(),
            message,
        });
    }

    pub(super) fn of_controller(
        &mut self,
        controller: &ControllerReport,
        queue: Option<&QueueReport>,
    ) {
        let ControllerReport { name, .. } = controller;
        let now = self.now;
        let mut push = |severity, message| self.push(severity, Section::Controllers, name, message);
        let unready = controller.sources.iter();
        let unready = unready.filter(|source| source.state == SourceState::NotReady);
        let unready: Vec<String> = unready.map(reason_of).collect();
        let starts = ["waiting", "syncing"].contains(&controller.state.as_str());
        if starts && now.duration_since(controller.since) > LONG_START {
            let since = span(now, controller.since);
            let mut message = format!("no worker runs, {} for {since}", controller.state);
            if !unready.is_empty() {
                message.push_str(": ");
                message.push_str(&unready.join(", "));
            }
            push(Severity::Error, message);
        } else if !starts && !unready.is_empty() {
            push(Severity::Error, unready.join(", "));
        }
        if let Some(run) = &controller.longest_run
            && now.duration_since(run.since) > LONG_RUN
        {
            let since = span(now, run.since);
            push(Severity::Warning, format!("{} runs for {since}", run.key));
        }
        if let Some(queue) = queue
            && controller.is_saturated()
            && queue.ready > 0
        {
            let (workers, ready) = (controller.workers, queue.ready);
            let message = format!("all {workers} workers are busy, and {ready} keys are ready");
            push(Severity::Warning, message);
        }
        for (count, what) in [
            (controller.panics, "reconciles panicked"),
            (
                controller.timeouts,
                "reconciles were dropped at the time-out",
            ),
            (controller.watch_panics, "handlers or predicates panicked"),
            (controller.given_up, "keys were given up"),
        ] {
            if count > 0 {
                push(Severity::Warning, format!("{count} {what} since the start"));
            }
        }
    }

    pub(super) fn of_queue(&mut self, queue: &QueueReport) {
        if queue.failing == 0 {
            return;
        }
        let keys = if queue.failing == 1 {
            "key fails"
        } else {
            "keys fail"
        };
        let mut message = format!("{} {keys}", queue.failing);
        let failing = queue.items.iter().filter(|item| item.last_error.is_some());
        if let Some(worst) = failing.max_by_key(|item| item.failures) {
            message.push_str(&worst_of(worst));
        }
        self.push(Severity::Error, Section::Queues, &queue.name, message);
    }

    pub(super) fn of_informer(&mut self, informer: &InformerReport) {
        let now = self.now;
        let name = informer.full_name();
        let mut push = |severity, message| self.push(severity, Section::Informers, &name, message);
        if let Some(failure) = &informer.failure {
            let synced = if informer.synced {
                ""
            } else {
                "not synced, and "
            };
            let message = format!(
                "{synced}failing for {}, {} times ({}): {}",
                span(now, failure.since),
                failure.times,
                failure.class,
                excerpt(&failure.message)
            );
            push(Severity::Error, message);
        } else if !informer.synced && informer.activity != "idle" {
            let late = now.duration_since(informer.since) > LONG_START;
            let severity = if late {
                Severity::Error
            } else {
                Severity::Warning
            };
            let since = span(now, informer.since);
            push(
                severity,
                format!("not synced: {} for {since}", informer.activity),
            );
        }
        if informer.quarantined > 0 {
            let first = informer.quarantined_objects.first();
            let first = first.map_or_else(String::new, |object| {
                format!(", as {}: {}", object.key, excerpt(&object.error))
            });
            let message = format!("{} objects cannot be read{first}", informer.quarantined);
            push(Severity::Error, message);
        }
        for handler in &informer.handlers {
            if handler.dropped > 0 {
                let message = format!("handler {} missed {} events", handler.name, handler.dropped);
                push(Severity::Error, message);
            }
            if handler.backlog > LARGE_BACKLOG {
                let message = format!(
                    "{} events wait for handler {}",
                    handler.backlog, handler.name
                );
                push(Severity::Warning, message);
            }
            if handler.panics > 0 {
                let message = format!("handler {} panicked {} times", handler.name, handler.panics);
                push(Severity::Warning, message);
            }
        }
    }

    pub(super) fn of_election(&mut self, election: &ElectionReport) {
        let now = self.now;
        let error = election.last_error.as_ref();
        let cause = error.map_or_else(String::new, |error| {
            format!(": {}", excerpt(&error.message))
        });
        let mut push =
            |severity, message| self.push(severity, Section::Election, &election.lease, message);
        match election.state.as_str() {
            "lost" => push(Severity::Error, format!("the lease was lost{cause}")),
            // A request for the lease failed since its last renewal. One that failed just now may be its watch.
            "leading" if error.is_some_and(|error| Some(error.since) > election.last_renewal) => {
                let renewal = election.last_renewal.unwrap_or(election.since);
                let since = span(now, renewal);
                if now.duration_since(renewal) > LATE_RENEWAL {
                    push(Severity::Error, format!("not renewed for {since}{cause}"));
                }
            }
            "candidate" if election.holder.is_none() => {
                let since = span(now, election.since);
                let late = now.duration_since(election.since) > LONG_START;
                if late {
                    push(
                        Severity::Error,
                        format!("no holder is known for {since}{cause}"),
                    );
                }
            }
            _ => {}
        }
    }

    pub(super) fn of_writes(&mut self, writes: &WritesReport) {
        let now = self.now;
        let name = &writes.controller;
        let unknown = writes.unknown();
        if unknown > 0 {
            let message = format!("{unknown} writes have no answer: their effect is unknown");
            self.push(Severity::Warning, Section::Writes, name, message);
        }
        if let Some(oldest) = writes.oldest
            && now.duration_since(oldest).as_millis() > i128::from(writes.limit_millis)
        {
            let since = span(now, oldest);
            let message = format!("the caches have not shown own writes for {since}");
            self.push(Severity::Warning, Section::Writes, name, message);
        }
    }
}

/// Why a controller gets no requests of a source. The informer of a watch has a problem of its own, with the error.
fn reason_of(source: &SourceReport) -> String {
    let SourceReport { name, cause, .. } = source;
    if source.watch {
        return format!("its watch of {name} is not ready ({cause})");
    }
    let message = excerpt(&source.message);
    format!("its source {name} is not ready ({cause}): {message}")
}

/// The failures of a key, after the number of failing keys.
fn worst_of(item: &ItemReport) -> String {
    let error = item.last_error.as_ref();
    let error = error.map_or_else(String::new, |error| {
        format!(": {}", excerpt(&error.message))
    });
    let times = if item.failures == 1 { "once" } else { "times" };
    let count = match item.failures {
        1 => String::new(),
        count => format!("{count} "),
    };
    format!(", {} {count}{times}{error}", item.key)
}

/// The begin of an error, in one line.
fn excerpt(message: &str) -> String {
    let line = one_line(message);
    match line.char_indices().find(|(place, _)| *place >= EXCERPT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

// === impl Severity ===

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

// === impl Section ===

impl Section {
    /// The name of its page.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Controllers => "controllers",
            Self::Queues => "queues",
            Self::Informers => "informers",
            Self::Election => "election",
            Self::Writes => "writes",
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
