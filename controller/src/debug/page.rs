//! The text of the pages.

use std::fmt::Write as _;

use jiff::{SignedDuration, SpanRound, Timestamp, Unit};

use super::{FailureReport, InformerReport, ItemReport, ItemState, QueueReport};

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
fn span(later: Timestamp, earlier: Timestamp) -> String {
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
fn one_line(message: &str) -> String {
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
