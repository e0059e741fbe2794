//! The text of the pages.

use std::fmt::Write as _;

use jiff::{SignedDuration, SpanRound, Timestamp, Unit};

use super::controllers::{ControllerReport, SourceState};
use super::election::ElectionReport;
use super::informers::{FailureReport, InformerReport};
use super::overview::Overview;
use super::problems::Problem;
use super::queues::{ItemReport, ItemState, QueueReport};
use super::writes::WritesReport;

/// The page of all reports.
pub(super) fn overview(all: &Overview) -> String {
    let now = all.time;
    let parts = [
        problems(&all.problems),
        controllers(&all.controllers, now),
        queues(&all.queues, now),
        informers(&all.informers, now),
        election(&all.election, now),
        writes(&all.writes, now),
    ];
    let head = format!("{} at {now}, reeve {}\n\n", all.instance, all.reeve);
    head + &parts.join("\n")
}

fn problems(problems: &[Problem]) -> String {
    if problems.is_empty() {
        return "no problems\n".to_owned();
    }
    let mut text = String::new();
    for problem in problems {
        let severity = problem.severity.to_string().to_uppercase();
        let Problem {
            section,
            name,
            message,
            ..
        } = problem;
        let _ = writeln!(text, "{severity} {section} {name}: {message}");
    }
    text
}

/// The page of the controllers.
pub(super) fn controllers(reports: &[ControllerReport], now: Timestamp) -> String {
    let mut text = String::new();
    for one in reports {
        let kind = one.kind.as_deref();
        let kind = kind.map_or_else(String::new, |kind| format!(" of {kind}"));
        let runs = &one.reconciles;
        let _ = writeln!(
            text,
            "controller {}{kind}: {} for {}, {} of {} workers busy",
            one.name,
            one.state,
            span(now, one.since),
            one.busy,
            one.workers
        );
        let _ = writeln!(
            text,
            "  reconciles: {} done, {} requeued, {} requeued after a time, {} failed, {} panicked, {} timed out",
            runs.success, runs.requeue, runs.requeue_after, runs.error, one.panics, one.timeouts
        );
        if let Some(success) = one.last_success {
            let _ = writeln!(text, "  the last success was {} ago", span(now, success));
        }
        if let Some(run) = &one.longest_run {
            let _ = writeln!(text, "  {} runs for {}", run.key, span(now, run.since));
        }
        for (count, what) in [
            (one.given_up, "keys given up"),
            (one.watch_panics, "panics of handlers and predicates"),
        ] {
            if count > 0 {
                let _ = writeln!(text, "  {count} {what}");
            }
        }
        for source in &one.sources {
            let kind = if source.watch { "watch" } else { "source" };
            let state = match source.state {
                SourceState::NotReady => "NOT READY",
                state => state.as_str(),
            };
            let _ = write!(text, "  {kind} {}: {state}", source.name);
            if !source.message.is_empty() {
                let _ = write!(text, " ({}): {}", source.cause, one_line(&source.message));
            }
            text.push('\n');
        }
    }
    if reports.is_empty() {
        text.push_str("no controllers\n");
    }
    text
}

/// The page of the leases.
pub(super) fn election(reports: &[ElectionReport], now: Timestamp) -> String {
    let mut text = String::new();
    for one in reports {
        let controller = one.controller.as_deref();
        let controller = controller.map_or_else(String::new, |name| format!(" of {name}"));
        let holder = one.holder.as_deref();
        let holder = holder.map_or_else(
            || "no holder known".to_owned(),
            |holder| format!("held by {holder}"),
        );
        let state = if one.state == "lost" {
            "LOST"
        } else {
            &one.state
        };
        let _ = writeln!(
            text,
            "lease {}{controller}: {state} for {}, {holder}",
            one.lease,
            span(now, one.since)
        );
        let _ = write!(
            text,
            "  candidate {}, {} renewals",
            one.identity, one.renewals
        );
        if let Some(renewal) = one.last_renewal {
            let _ = write!(text, ", the last {} ago", span(now, renewal));
        }
        text.push('\n');
        if let Some(error) = &one.last_error {
            let (ago, message) = (span(now, error.since), one_line(&error.message));
            let _ = writeln!(text, "  a request failed {ago} ago: {message}");
        }
    }
    if reports.is_empty() {
        text.push_str("no leader election\n");
    }
    text
}

/// The page of the own writes.
pub(super) fn writes(reports: &[WritesReport], now: Timestamp) -> String {
    let mut text = String::new();
    for one in reports {
        let oldest = one.oldest.map_or_else(String::new, |oldest| {
            format!(", the oldest for {}", span(now, oldest))
        });
        let _ = writeln!(
            text,
            "own writes of {}: {} keys wait{oldest}",
            one.controller, one.keys
        );
        for kind in &one.kinds {
            let (name, writes, unknown) = (&kind.kind, kind.writes, kind.unknown);
            let _ = writeln!(
                text,
                "  {name}: {writes} not shown, {unknown} without an answer"
            );
        }
        if one.hidden > 0 {
            let _ = writeln!(
                text,
                "  {} written objects that no cache has shown",
                one.hidden
            );
        }
    }
    if reports.is_empty() {
        text.push_str("no controller waits for own writes\n");
    }
    text
}

/// The page of the queues.
pub(super) fn queues(reports: &[QueueReport], now: Timestamp) -> String {
    let mut text = String::new();
    for queue in reports {
        let _ = write!(
            text,
            "queue {}: {} ready, {} in flight, {} delayed, {} waiting for a token, {} failing",
            queue.name,
            queue.ready,
            queue.in_flight,
            queue.waiting,
            queue.awaiting_token,
            queue.failing
        );
        if queue.shutting_down {
            let _ = write!(text, ", shutting down ({} adds refused)", queue.refused);
        }
        text.push('\n');
        for item in &queue.items {
            item_text(&mut text, item, now);
        }
        if queue.more {
            text.push_str("  … and more: ?limit=\n");
        }
    }
    if reports.is_empty() {
        text.push_str("no queues\n");
    }
    text
}

fn item_text(text: &mut String, item: &ItemReport, now: Timestamp) {
    let state = match item.state {
        ItemState::InFlight { since, again } => {
            let again = if again { ", runs again" } else { "" };
            format!("in flight for {}{again}", span(now, since))
        }
        ItemState::Ready => "ready".into(),
        ItemState::AwaitingToken => "waiting for a token".into(),
        ItemState::Waiting { due } => format!("due in {}", span(due, now)),
    };
    let _ = write!(text, "  {}  {state}", item.key);
    if item.priority != 0 {
        let _ = write!(text, ", priority {}", item.priority);
    }
    if !item.reasons.is_empty() {
        let _ = write!(text, ", because: {}", item.reasons.join(", "));
    }
    if item.failures > 0 {
        let _ = write!(text, ", {} failures", item.failures);
    }
    if let Some(error) = &item.last_error {
        let class = if error.class.is_empty() {
            String::new()
        } else {
            format!(" ({})", error.class)
        };
        let _ = write!(text, ", last{class}: {}", one_line(&error.message));
    }
    text.push('\n');
}

/// The page of the informers.
pub(super) fn informers(reports: &[InformerReport], now: Timestamp) -> String {
    let mut text = String::new();
    for informer in reports {
        let synced = if informer.synced {
            "synced"
        } else {
            "NOT SYNCED"
        };
        let _ = writeln!(
            text,
            "informer {}: {synced}, {} for {}, {} objects in {} bytes, resourceVersion {}",
            informer.full_name(),
            informer.activity,
            span(now, informer.since),
            informer.objects,
            informer.bytes,
            informer.resource_version
        );
        if let Some(heard) = informer.last_heard {
            let _ = writeln!(text, "  the server was heard {} ago", span(now, heard));
        }
        if let Some(changed) = informer.last_change {
            let _ = writeln!(text, "  the store changed {} ago", span(now, changed));
        }
        if let Some(failure) = &informer.failure {
            failure_text(&mut text, "  ", failure, now);
        } else if let Some(failure) = &informer.last_failure {
            let (ago, cause) = (span(now, failure.since), one_line(&failure.message));
            let _ = writeln!(
                text,
                "  it failed last {ago} ago ({}): {cause}",
                failure.class
            );
        }
        for (count, what) in [
            (
                informer.queued as u64,
                "changes on their way into the store",
            ),
            (informer.unreadable, "versions that did not decode"),
            (informer.stale, "lists and events older than what is known"),
            (informer.epochs, "times the server's history began again"),
        ] {
            if count > 0 {
                let _ = writeln!(text, "  {count} {what}");
            }
        }
        for watch in &informer.watches {
            let synced = if watch.synced { "synced" } else { "NOT SYNCED" };
            let since = span(now, watch.since);
            let (scope, activity) = (&watch.scope, &watch.activity);
            let _ = writeln!(
                text,
                "  namespace {scope}: {synced}, {activity} for {since}"
            );
            if let Some(failure) = &watch.failure {
                failure_text(&mut text, "    ", failure, now);
            }
        }
        for handler in &informer.handlers {
            let synced = if handler.synced { "" } else { ", NOT SYNCED" };
            let _ = writeln!(
                text,
                "  handler {}: {} wait, {} delivered, {} dropped, {} panics{synced}",
                handler.name, handler.backlog, handler.delivered, handler.dropped, handler.panics
            );
        }
        if informer.quarantined > 0 {
            let _ = writeln!(text, "  {} objects cannot be read:", informer.quarantined);
        }
        for object in &informer.quarantined_objects {
            let _ = writeln!(text, "    {}  {}", object.key, one_line(&object.error));
        }
    }
    if reports.is_empty() {
        text.push_str("no informers\n");
    }
    text
}

fn failure_text(text: &mut String, indent: &str, failure: &FailureReport, now: Timestamp) {
    let _ = writeln!(
        text,
        "{indent}failing for {}, {} times ({}): {}",
        span(now, failure.since),
        failure.times,
        failure.class,
        one_line(&failure.message)
    );
}

/// From `earlier` to `later`, as `1m 5s`; `0s` if `later` is before `earlier`.
pub(super) fn span(later: Timestamp, earlier: Timestamp) -> String {
    let length = later.duration_since(earlier).max(SignedDuration::ZERO);
    let unit = if length < SignedDuration::from_secs(10) {
        Unit::Millisecond
    } else {
        Unit::Second
    };
    let rounded = jiff::Span::try_from(length)
        .and_then(|span| span.round(SpanRound::new().smallest(unit).largest(Unit::Hour)));
    rounded.map_or_else(|_| format!("{length:#}"), |span| format!("{span:#}"))
}

/// Errors may have several lines.
pub(super) fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, said) in [(0, "0s"), (5, "5s"), (65, "1m 5s"), (7 * 3600 + 1, "7h 1s")] {
            assert_eq!(span(at(seconds), at(0)), said);
        }
        assert_eq!(span(at(0), at(5)), "0s", "a clock that was set back");
    }

    #[test]
    fn an_item_that_waits_for_a_token_is_called_so_in_text_and_json() {
        let report = QueueReport {
            name: "web".into(),
            ready: 0,
            waiting: 0,
            awaiting_token: 1,
            in_flight: 0,
            failing: 1,
            refused: 0,
            shutting_down: false,
            items: vec![ItemReport {
                key: "default/a".into(),
                state: ItemState::AwaitingToken,
                priority: 0,
                failures: 1,
                last_error: None,
                reasons: Vec::new(),
            }],
            more: false,
        };
        let text = queues(std::slice::from_ref(&report), Timestamp::UNIX_EPOCH);
        assert!(text.contains("0 delayed, 1 waiting for a token,"), "{text}");
        assert!(text.contains("default/a  waiting for a token"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["awaitingToken"], 1);
        assert_eq!(json["items"][0]["state"], "awaitingToken");
    }
}
