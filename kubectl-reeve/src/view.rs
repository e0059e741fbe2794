//! The lines of a report: the summary, or one part in full.

use jiff::Timestamp;

use crate::command::View;
use crate::report::{
    Controller, Election, Informer, Item, Message, Queue, Report, Section, Writes,
};
use crate::table::{Cell, Screen, Style, Table};

/// The failing keys of a queue in the summary, unless `--limit` sets another number.
pub(crate) const FAILING: usize = 10;

/// What a view shows, and the time to which its spans refer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) view: View,
    pub(crate) now: Timestamp,
    /// The failing keys of a queue in the summary.
    pub(crate) failing: usize,
}

// === impl Frame ===

impl Frame {
    /// Shows `report` on `screen`.
    pub(crate) fn show(self, report: &Report, screen: &mut Screen) {
        self.problems(report, screen);
        for part in [
            View::Controllers,
            View::Queues,
            View::Informers,
            View::Election,
            View::Writes,
        ] {
            if self.view != View::Summary && self.view != part {
                continue;
            }
            match part {
                View::Controllers | View::Summary => {
                    let head = [
                        "name",
                        "kind",
                        "state",
                        "busy",
                        "ok",
                        "failed",
                        "panics",
                        "last success",
                    ];
                    self.part(
                        "controllers",
                        &report.controllers,
                        head,
                        screen,
                        Self::controllers,
                    );
                }
                View::Queues => {
                    let head = [
                        "queue",
                        "ready",
                        "in flight",
                        "delayed",
                        "for a token",
                        "failing",
                    ];
                    self.part("queues", &report.queues, head, screen, Self::queues);
                }
                View::Informers => {
                    let head = [
                        "name", "state", "for", "heard", "objects", "bytes", "backlog",
                    ];
                    self.part(
                        "informers",
                        &report.informers,
                        head,
                        screen,
                        Self::informers,
                    );
                }
                View::Election => {
                    let head = ["lease", "state", "for", "holder", "renewals", "last error"];
                    self.part("election", &report.election, head, screen, Self::election);
                }
                View::Writes => {
                    let head = ["controller", "keys", "oldest", "followed", "writes"];
                    self.part("own writes", &report.writes, head, screen, Self::writes);
                }
            }
        }
    }

    fn problems(self, report: &Report, screen: &mut Screen) {
        let problems = match &report.problems {
            Section::Served(problems) => problems,
            other => {
                screen.line("problems", Style::Bold);
                Self::unserved(other, screen);
                return;
            }
        };
        if problems.is_empty() {
            screen.line("no problems", Style::Bold);
            return;
        }
        let title = match problems.len() {
            1 => "1 problem".to_owned(),
            count => format!("{count} problems"),
        };
        screen.line(&title, Style::Bold);
        for problem in problems {
            let style = if problem.severity == "error" {
                Style::Red
            } else {
                Style::Yellow
            };
            let line = format!(
                "  {:7}  {} {}: {}",
                problem.severity, problem.section, problem.name, problem.message
            );
            screen.line(&line, style);
        }
    }

    /// A part under its title: a table of `rows`, and what `details` adds below it.
    fn part<T, const N: usize>(
        self,
        title: &str,
        section: &Section<T>,
        head: [&str; N],
        screen: &mut Screen,
        rows: impl Fn(Self, &[T], &mut Table, &mut Screen),
    ) {
        screen.gap();
        screen.line(title, Style::Bold);
        match section {
            Section::Served(reports) if reports.is_empty() => screen.line("  none", Style::Dim),
            Section::Served(reports) => {
                let (mut table, mut below) = (Table::new(head), screen.same());
                rows(self, reports, &mut table, &mut below);
                screen.table(&table);
                screen.append(below);
            }
            Section::Missing | Section::Unreadable(_) => Self::unserved(section, screen),
        }
    }

    /// Why a section has no reports.
    fn unserved<T>(section: &Section<T>, screen: &mut Screen) {
        match section {
            Section::Served(_) => {}
            Section::Missing => {
                screen.line("  not served by this version of the program", Style::Dim);
            }
            Section::Unreadable(error) => {
                let line = format!("  not readable by this version of the plugin: {error}");
                screen.line(&line, Style::Yellow);
            }
        }
    }

    fn controllers(self, controllers: &[Controller], table: &mut Table, below: &mut Screen) {
        for one in controllers {
            let runs = &one.reconciles;
            let done = runs.success + runs.requeue + runs.requeue_after;
            let state = format!("{} {}", one.state, self.since(one.since));
            table.row([
                one.name.as_str().into(),
                one.kind.as_deref().unwrap_or("-").into(),
                Cell::marked(state.trim(), Style::Yellow, one.state != "running"),
                Cell::marked(
                    format!("{}/{}", one.busy, one.workers),
                    Style::Yellow,
                    one.workers > 0 && one.busy >= one.workers,
                ),
                done.to_string().into(),
                Cell::marked(runs.error.to_string(), Style::Yellow, runs.error > 0),
                Cell::marked(one.panics.to_string(), Style::Red, one.panics > 0),
                self.ago(one.last_success).into(),
            ]);
            if let Some(run) = &one.longest_run {
                let line = format!(
                    "  {}: {} runs for {}",
                    one.name,
                    run.key,
                    self.since(run.since)
                );
                below.line(&line, Style::Plain);
            }
            for source in &one.sources {
                let ready = source.state != "notReady";
                if ready && self.view == View::Summary {
                    continue;
                }
                let kind = if source.watch { "watch" } else { "source" };
                let state = if ready {
                    source.state.as_str()
                } else {
                    "NOT READY"
                };
                let mut line = format!("  {}: {kind} {}: {state}", one.name, source.name);
                if !source.message.is_empty() {
                    line.push_str(&format!(" ({}): {}", source.cause, source.message));
                }
                below.line(&line, if ready { Style::Plain } else { Style::Red });
            }
        }
    }

    fn queues(self, queues: &[Queue], table: &mut Table, below: &mut Screen) {
        for queue in queues {
            table.row([
                queue.name.as_str().into(),
                queue.ready.to_string().into(),
                queue.in_flight.to_string().into(),
                queue.waiting.to_string().into(),
                queue.awaiting_token.to_string().into(),
                Cell::marked(queue.failing.to_string(), Style::Red, queue.failing > 0),
            ]);
            let shown = |item: &&Item| self.view == View::Queues || item.failures > 0;
            let mut items: Vec<&Item> = queue.items.iter().filter(shown).collect();
            let all = items.len();
            if self.view != View::Queues {
                // Those that fail longest come last in the queue.
                items.sort_by_key(|item| std::cmp::Reverse(item.failures));
                items.truncate(self.failing);
            }
            if items.is_empty() {
                continue;
            }
            below.gap();
            let mut keys = Table::new(["key", "state", "failures", "because", "last error"]);
            for item in &items {
                keys.row(self.item(item));
            }
            below.line(&format!("  keys of {}", queue.name), Style::Bold);
            below.table(&keys);
            if queue.more || items.len() < all {
                below.line("  … and more: --limit", Style::Dim);
            }
        }
    }

    fn item(self, item: &Item) -> [Cell; 5] {
        let mut state = match item.state.as_str() {
            "inFlight" => format!("in flight for {}", self.since(item.since)),
            "waiting" => format!("due in {}", self.until(item.due)),
            "awaitingToken" => "waits for a token".to_owned(),
            other => other.to_owned(),
        };
        if item.again {
            state.push_str(", again");
        }
        if item.priority != 0 {
            state = format!("{state}, priority {}", item.priority);
        }
        [
            item.key.as_str().into(),
            state.into(),
            Cell::marked(item.failures.to_string(), Style::Red, item.failures > 0),
            item.reasons.join(", ").into(),
            item.last_error
                .as_ref()
                .map(message)
                .unwrap_or_default()
                .into(),
        ]
    }

    fn informers(self, informers: &[Informer], table: &mut Table, below: &mut Screen) {
        for one in informers {
            let name = match &one.cluster {
                Some(cluster) => format!("{cluster}/{}", one.name),
                None => one.name.clone(),
            };
            let backlog: u64 = one.handlers.iter().map(|handler| handler.backlog).sum();
            let state = if one.synced {
                one.activity.clone()
            } else {
                format!("NOT SYNCED, {}", one.activity)
            };
            table.row([
                name.as_str().into(),
                Cell::marked(state, Style::Red, !one.synced),
                self.since(one.since).into(),
                self.ago(one.last_heard).into(),
                one.objects.to_string().into(),
                one.bytes.to_string().into(),
                (backlog + one.queued).to_string().into(),
            ]);
            if let Some(failure) = &one.failure {
                let since = self.since(failure.since);
                let line = format!("  {name}: failing for {since}: {}", message(failure));
                below.line(&line, Style::Red);
            }
            if one.quarantined > 0 {
                let line = format!("  {name}: {} objects cannot be read", one.quarantined);
                below.line(&line, Style::Red);
                for object in &one.quarantined_objects {
                    below.line(
                        &format!("    {}  {}", object.key, object.error),
                        Style::Plain,
                    );
                }
            }
            for handler in &one.handlers {
                let ill = handler.dropped > 0 || handler.panics > 0 || !handler.synced;
                if self.view == View::Summary && !ill {
                    continue;
                }
                let synced = if handler.synced { "" } else { ", NOT SYNCED" };
                let line = format!(
                    "  {name}: handler {}: {} wait, {} delivered, {} dropped, {} panics{synced}",
                    handler.name,
                    handler.backlog,
                    handler.delivered,
                    handler.dropped,
                    handler.panics
                );
                below.line(&line, if ill { Style::Yellow } else { Style::Plain });
            }
        }
    }

    fn election(self, elections: &[Election], table: &mut Table, below: &mut Screen) {
        for one in elections {
            let error = one.last_error.as_ref();
            table.row([
                one.lease.as_str().into(),
                Cell::marked(one.state.as_str(), Style::Red, one.state == "lost"),
                self.since(one.since).into(),
                one.holder.as_deref().unwrap_or("-").into(),
                one.renewals.to_string().into(),
                error.map(message).unwrap_or_default().into(),
            ]);
            let renewed = self.ago(one.last_renewal);
            let line = format!(
                "  {}: candidate {}, renewed {renewed}",
                one.lease, one.identity
            );
            below.line(&line, Style::Dim);
        }
    }

    fn writes(self, writes: &[Writes], table: &mut Table, _below: &mut Screen) {
        for one in writes {
            let kinds = one.kinds.iter().map(|kind| {
                let unknown = match kind.unknown {
                    0 => String::new(),
                    count => format!(" ({count} without an answer)"),
                };
                format!("{} {}{unknown}", kind.writes, kind.kind)
            });
            table.row([
                one.controller.as_str().into(),
                one.keys.to_string().into(),
                self.since(one.oldest).into(),
                one.hidden.to_string().into(),
                kinds.collect::<Vec<_>>().join(", ").into(),
            ]);
        }
    }

    /// The time since `earlier`, as `1m5s`.
    fn since(self, earlier: Option<Timestamp>) -> String {
        earlier.map_or_else(|| "-".to_owned(), |earlier| span(self.now, earlier))
    }

    fn ago(self, earlier: Option<Timestamp>) -> String {
        earlier.map_or_else(
            || "-".to_owned(),
            |earlier| format!("{} ago", span(self.now, earlier)),
        )
    }

    fn until(self, later: Option<Timestamp>) -> String {
        later.map_or_else(|| "-".to_owned(), |later| span(later, self.now))
    }
}

fn message(error: &Message) -> String {
    if error.class.is_empty() {
        error.message.clone()
    } else {
        format!("({}) {}", error.class, error.message)
    }
}

/// From `earlier` to `later` by its two largest units; `0s` if `later` is before `earlier`.
fn span(later: Timestamp, earlier: Timestamp) -> String {
    let seconds = later.duration_since(earlier).as_secs().max(0);
    let parts = [
        (seconds / 86_400, 'd'),
        (seconds / 3_600 % 24, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let shown = parts.iter().skip(first).take(2);
    let shown = shown.filter(|(count, unit)| *count > 0 || (first == 3 && *unit == 's'));
    shown
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(view: View, document: &serde_json::Value) -> String {
        let report = Report::of(document);
        let now = "2026-05-01T03:00:00Z".parse().unwrap();
        let mut screen = Screen::new(false);
        let failing = FAILING;
        Frame { view, now, failing }.show(&report, &mut screen);
        screen.into_text()
    }

    #[test]
    fn spans_have_their_two_largest_units() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, text) in [
            (0, "0s"),
            (-5, "0s"),
            (65, "1m5s"),
            (120, "2m"),
            (7 * 3600 + 1, "7h"),
            (2 * 86_400 + 3 * 3600, "2d3h"),
        ] {
            assert_eq!(span(at(seconds), at(0)), text);
        }
    }

    #[test]
    fn the_summary_begins_with_problems_and_shows_only_failing_keys() {
        let text = shown(
            View::Summary,
            &json!({
                "problems": [{"severity": "error", "section": "queues", "name": "web", "message": "1 key fails"}],
                "queues": [{"name": "web", "ready": 1, "failing": 1, "items": [
                    {"key": "ns/good", "state": "ready"},
                    {"key": "ns/bad", "state": "waiting", "due": "2026-05-01T03:01:05Z", "failures": 3,
                     "lastError": {"message": "refused", "class": "throttled"}},
                ]}],
            }),
        );
        assert!(
            text.starts_with("1 problem\n  error    queues web: 1 key fails\n"),
            "{text}"
        );
        assert!(text.contains("ns/bad  due in 1m5s  3"), "{text}");
        assert!(text.contains("(throttled) refused"), "{text}");
        assert!(!text.contains("ns/good"), "{text}");
        assert!(
            text.contains("own writes\n  not served by this version of the program\n"),
            "{text}"
        );
    }

    #[test]
    fn one_part_is_shown_in_full_and_alone() {
        let text = shown(
            View::Queues,
            &json!({"problems": [], "controllers": [{"name": "web"}], "queues": [
                {"name": "web", "items": [{"key": "ns/good", "state": "ready"}], "more": true}]}),
        );
        assert!(
            text.contains("no problems") && text.contains("ns/good"),
            "{text}"
        );
        assert!(
            text.contains("--limit") && !text.contains("controllers"),
            "{text}"
        );
    }
}
