//! The HTML page of all reports: problems, then a table for each part. Everything that is not markup here is escaped.

use std::fmt::Write as _;

use jiff::Timestamp;
use reeve_serve::debug::escaped;

use super::controllers::{ControllerReport, SourceState};
use super::election::ElectionReport;
use super::informers::InformerReport;
use super::overview::Overview;
use super::page::{one_line, span};
use super::problems::{Problem, Section, Severity};
use super::queues::{ItemReport, ItemState, QueueReport};
use super::writes::WritesReport;

/// A cell: its text, which is escaped here, and a class of the style sheet.
struct Cell(String, &'static str);

/// A column: its head, and whether it has numbers.
type Column = (&'static str, bool);

/// The body of the page.
pub(super) fn overview(all: &Overview) -> String {
    let now = all.time;
    let mut html = String::new();
    let instance = escaped(&all.instance);
    let _ = writeln!(html, "<h1>{instance}</h1>");
    let reeve = escaped(&all.reeve);
    let time = now.strftime("%Y-%m-%d %H:%M:%S UTC");
    let _ = writeln!(html, "<p class=\"faint\">{time}, reeve {reeve}</p>");
    problems(&mut html, &all.problems);
    controllers(&mut html, &all.controllers, now);
    queues(&mut html, &all.queues, now);
    informers(&mut html, &all.informers, now);
    election(&mut html, &all.election, now);
    writes(&mut html, &all.writes, now);
    html
}

fn problems(html: &mut String, problems: &[Problem]) {
    if problems.is_empty() {
        html.push_str("<p class=\"none\"><b>no problems</b></p>\n");
        return;
    }
    html.push_str("<ul class=\"problems\">\n");
    for problem in problems {
        let (severity, section) = (problem.severity, problem.section);
        let (name, message) = (escaped(&problem.name), escaped(&problem.message));
        let class = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let _ = writeln!(
            html,
            "<li class=\"{class}\"><b>{severity}</b> <a href=\"#{section}\">{section}</a> {name}: {message}</li>"
        );
    }
    html.push_str("</ul>\n");
}

fn controllers(html: &mut String, reports: &[ControllerReport], now: Timestamp) {
    head(html, Section::Controllers, "Controllers");
    let columns = [
        ("name", false),
        ("kind", false),
        ("state", false),
        ("busy", true),
        ("done", true),
        ("failed", true),
        ("panics", true),
        ("last success", false),
        ("longest run", false),
    ];
    let rows = reports.iter().map(|one| {
        let runs = &one.reconciles;
        let fine = ["running", "standby"].contains(&&*one.state);
        let state = format!("{} for {}", one.state, span(now, one.since));
        let longest = one.longest_run.as_ref();
        [
            plain(&one.name),
            plain(one.kind.as_deref().unwrap_or("–")),
            Cell(state, if fine { "" } else { "warn" }),
            number(
                format!("{}/{}", one.busy, one.workers),
                "warn",
                one.is_saturated(),
            ),
            number(runs.success + runs.requeue + runs.requeue_after, "", false),
            number(runs.error, "warn", runs.error > 0),
            number(one.panics, "bad", one.panics > 0),
            Cell(ago(now, one.last_success), ""),
            Cell(
                longest.map_or_else(
                    || "–".to_owned(),
                    |run| format!("{} for {}", run.key, span(now, run.since)),
                ),
                "",
            ),
        ]
    });
    table(html, columns, rows, "no controllers");
    let sources = reports.iter().flat_map(|one| {
        one.sources.iter().map(|source| {
            let message = one_line(&source.message);
            let cause = match source.cause.as_str() {
                "" => message,
                cause => format!("({cause}) {message}"),
            };
            let class = match source.state {
                SourceState::NotReady => "bad",
                SourceState::Absent => "warn",
                _ => "",
            };
            [
                plain(&one.name),
                plain(if source.watch { "watch" } else { "source" }),
                plain(&source.name),
                Cell(source.state.as_str().to_owned(), class),
                Cell(cause, ""),
            ]
        })
    });
    let columns = ["controller", "", "of", "state", "cause"].map(|name| (name, false));
    html.push_str("<h3>Watches and sources</h3>\n");
    table(html, columns, sources, "no watches and no sources");
}

fn queues(html: &mut String, reports: &[QueueReport], now: Timestamp) {
    head(html, Section::Queues, "Queues");
    let columns = [
        ("name", false),
        ("ready", true),
        ("in flight", true),
        ("delayed", true),
        ("for a token", true),
        ("failing", true),
        ("", false),
    ];
    let rows = reports.iter().map(|one| {
        [
            plain(&one.name),
            number(one.ready, "", false),
            number(one.in_flight, "", false),
            number(one.waiting, "", false),
            number(one.awaiting_token, "", false),
            number(one.failing, "bad", one.failing > 0),
            plain(if one.shutting_down {
                "shutting down"
            } else {
                ""
            }),
        ]
    });
    table(html, columns, rows, "no queues");
    for one in reports.iter().filter(|one| !one.items.is_empty()) {
        let _ = writeln!(html, "<h3>Keys of {}</h3>", escaped(&one.name));
        let columns = [
            ("key", false),
            ("state", false),
            ("priority", true),
            ("failures", true),
            ("because", false),
            ("last error", false),
        ];
        table(
            html,
            columns,
            one.items.iter().map(|item| cells_of(item, now)),
            "",
        );
        if one.more {
            html.push_str("<p class=\"faint\">… and more keys</p>\n");
        }
    }
}

fn cells_of(item: &ItemReport, now: Timestamp) -> [Cell; 6] {
    let state = match item.state {
        ItemState::InFlight { since, again } => {
            let again = if again { ", runs again" } else { "" };
            format!("in flight for {}{again}", span(now, since))
        }
        ItemState::Ready => "ready".to_owned(),
        ItemState::AwaitingToken => "waits for a token".to_owned(),
        ItemState::Waiting { due } => format!("due in {}", span(due, now)),
    };
    let error = item.last_error.as_ref().map_or_else(String::new, |error| {
        let message = one_line(&error.message);
        match error.class.as_ref() {
            "" => message,
            class => format!("({class}) {message}"),
        }
    });
    [
        plain(&item.key),
        Cell(state, ""),
        number(item.priority, "", false),
        number(item.failures, "bad", item.failures > 0),
        Cell(item.reasons.join(", "), ""),
        Cell(error, ""),
    ]
}

fn informers(html: &mut String, reports: &[InformerReport], now: Timestamp) {
    head(html, Section::Informers, "Informers");
    let columns = [
        ("name", false),
        ("state", false),
        ("objects", true),
        ("bytes", true),
        ("backlog", true),
        ("heard", false),
        ("changed", false),
        ("failure", false),
    ];
    let rows = reports.iter().map(|one| {
        let backlog: usize = one.handlers.iter().map(|handler| handler.backlog).sum();
        let state = format!("{} for {}", one.activity, span(now, one.since));
        let state = if one.synced {
            Cell(state, if one.failure.is_some() { "warn" } else { "" })
        } else {
            Cell(format!("not synced, {state}"), "bad")
        };
        let failure = one.failure.as_ref().map_or_else(String::new, |failure| {
            let (times, class) = (failure.times, &failure.class);
            format!("{times} times ({class}): {}", one_line(&failure.message))
        });
        [
            Cell(one.full_name(), ""),
            state,
            number(one.objects, "", false),
            number(one.bytes, "", false),
            number(backlog + one.queued, "", false),
            Cell(ago(now, one.last_heard), ""),
            Cell(ago(now, one.last_change), ""),
            Cell(failure, ""),
        ]
    });
    table(html, columns, rows, "no informers");
    let unread = reports.iter().flat_map(|one| {
        let objects = one.quarantined_objects.iter();
        objects.map(|object| {
            [
                Cell(one.full_name(), ""),
                plain(&object.key),
                Cell(one_line(&object.error), "bad"),
            ]
        })
    });
    let mut unread = unread.peekable();
    if unread.peek().is_some() {
        html.push_str("<h3>Objects that cannot be read</h3>\n");
        let columns = ["informer", "object", "error"].map(|name| (name, false));
        table(html, columns, unread, "");
    }
}

fn election(html: &mut String, reports: &[ElectionReport], now: Timestamp) {
    head(html, Section::Election, "Leader election");
    let columns = [
        ("lease", false),
        ("of", false),
        ("state", false),
        ("holder", false),
        ("this candidate", false),
        ("renewals", true),
        ("last renewal", false),
        ("last error", false),
    ];
    let rows = reports.iter().map(|one| {
        let state = format!("{} for {}", one.state, span(now, one.since));
        let error = one.last_error.as_ref().map_or_else(String::new, |error| {
            format!(
                "{} ago: {}",
                span(now, error.since),
                one_line(&error.message)
            )
        });
        [
            plain(&one.lease),
            plain(one.controller.as_deref().unwrap_or("the program")),
            Cell(state, if one.state == "lost" { "bad" } else { "" }),
            plain(one.holder.as_deref().unwrap_or("–")),
            plain(&one.identity),
            number(one.renewals, "", false),
            Cell(ago(now, one.last_renewal), ""),
            Cell(error, ""),
        ]
    });
    table(
        html,
        columns,
        rows,
        "no leader election: this replica always works",
    );
}

fn writes(html: &mut String, reports: &[WritesReport], now: Timestamp) {
    head(html, Section::Writes, "Own writes");
    let columns = [
        ("controller", false),
        ("waiting keys", true),
        ("oldest", false),
        ("never shown", true),
        ("writes by kind", false),
    ];
    let rows = reports.iter().map(|one| {
        let kinds = one.kinds.iter().map(|kind| match kind.unknown {
            0 => format!("{} {}", kind.writes, kind.kind),
            unknown => format!(
                "{} {} ({unknown} without an answer)",
                kind.writes, kind.kind
            ),
        });
        let kinds: Vec<String> = kinds.collect();
        let oldest = one.oldest.map(|oldest| span(now, oldest));
        [
            plain(&one.controller),
            number(one.keys, "", false),
            Cell(oldest.unwrap_or_else(|| "–".to_owned()), ""),
            number(one.hidden, "", false),
            Cell(
                kinds.join(", "),
                if one.unknown() > 0 { "warn" } else { "" },
            ),
        ]
    });
    table(html, columns, rows, "no controller waits for own writes");
}

/// The head of a part, with a link to its page.
fn head(html: &mut String, section: Section, title: &str) {
    let _ = writeln!(
        html,
        "<h2 id=\"{section}\">{title}<a href=\"debug/{section}\">page</a><a href=\"debug/{section}?format=json\">json</a></h2>"
    );
}

/// A table, or `none` as a line if it has no rows.
fn table<const N: usize>(
    html: &mut String,
    columns: [Column; N],
    rows: impl Iterator<Item = [Cell; N]>,
    none: &str,
) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        let _ = writeln!(html, "<p class=\"faint\">{none}</p>");
        return;
    }
    html.push_str("<div class=\"wide\"><table>\n<thead><tr>");
    for (name, is_number) in columns {
        let class = if is_number { " class=\"number\"" } else { "" };
        let _ = write!(html, "<th{class} scope=\"col\">{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for (Cell(text, class), (_, is_number)) in row.into_iter().zip(columns) {
            let classes = match (is_number, class) {
                (false, "") => String::new(),
                (false, class) => format!(" class=\"{class}\""),
                (true, "") => " class=\"number\"".to_owned(),
                (true, class) => format!(" class=\"number {class}\""),
            };
            let _ = write!(html, "<td{classes}>{}</td>", escaped(&text));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
}

fn plain(text: &str) -> Cell {
    Cell(text.to_owned(), "")
}

/// A number, of the class if it is `marked`.
fn number(count: impl ToString, class: &'static str, marked: bool) -> Cell {
    Cell(count.to_string(), if marked { class } else { "" })
}

fn ago(now: Timestamp, earlier: Option<Timestamp>) -> String {
    earlier.map_or_else(
        || "–".to_owned(),
        |earlier| format!("{} ago", span(now, earlier)),
    )
}
