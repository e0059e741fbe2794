//! docs/runbook.md, "Messages", against the messages that decisions write.
//!
//! All tests of decisions and the random histories pass what they write through [`explained`].

use std::time::Duration;

use crate::api::condition::READY;
use crate::api::{IPBlock, IPBlockStatus};
use crate::guard::{Held, Scope};
use crate::policy::{Policy, Protected, RefusalKind};
use crate::prefix::Prefixes;
use crate::target::Target;

const RUNBOOK: &str = include_str!("../../docs/runbook.md");

/// What decisions make messages from.
const SOURCES: [&str; 11] = [
    include_str!("decision.rs"),
    include_str!("draft.rs"),
    include_str!("facts.rs"),
    include_str!("lifts.rs"),
    include_str!("railed.rs"),
    include_str!("settled.rs"),
    include_str!("../engine/kind.rs"),
    include_str!("../guard/brake.rs"),
    include_str!("../guard/held.rs"),
    include_str!("../policy.rs"),
    include_str!("../reconcile/engines.rs"),
];

/// A row of the table: patterns, in which `…` is any text, and the entry to read.
struct Row {
    patterns: Vec<&'static str>,
    see: &'static str,
}

// === impl Row ===

impl Row {
    /// Whether the message, or a later part of it, begins with a pattern.
    fn explains(&self, message: &str) -> bool {
        let later = message
            .match_indices("; ")
            .map(|(at, mark)| at + mark.len());
        let mut starts = std::iter::once(0).chain(later);
        starts.any(|start| self.begins(message.get(start..).unwrap_or_default()))
    }

    fn begins(&self, message: &str) -> bool {
        self.patterns.iter().any(|pattern| begins(pattern, message))
    }
}

fn begins(pattern: &str, message: &str) -> bool {
    let mut pieces = pattern.split('…');
    let Some(mut rest) = message.strip_prefix(pieces.next().unwrap_or_default()) else {
        return false;
    };
    pieces.all(|piece| match rest.find(piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    })
}

fn rows() -> Vec<Row> {
    let (_, table) = RUNBOOK.split_once("\n## Messages\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (patterns, see) = row.split_once(" | ").unwrap();
        Row {
            patterns: patterns
                .split('`')
                .step_by(2)
                .filter(|text| !text.is_empty())
                .collect(),
            see,
        }
    })
    .collect()
}

/// Checks that the table has a row for the message of `status`, with the reason of the block's condition, if `before` had
/// another message.
pub(super) fn explained(before: Option<&IPBlockStatus>, status: &IPBlockStatus) {
    let Some(message) = &status.message else {
        return;
    };
    if before.is_some_and(|before| before.message.as_ref() == Some(message)) {
        return;
    }
    let rows = rows();
    assert!(
        rows.iter().any(|row| row.begins(message)),
        "docs/runbook.md, \"Messages\", has no row for {message:?}"
    );
    let ready = status.condition(READY);
    let reason = ready.filter(|ready| ready.message.starts_with(message));
    // The reason of a failed call is the engine's.
    if let Some(ready) = reason.filter(|_| !message.contains("retrying")) {
        let named = format!("`{}`", ready.reason);
        let mut rows = rows.iter().filter(|row| row.explains(message));
        assert!(
            rows.any(|row| row.see.contains(&named)),
            "docs/runbook.md, \"Messages\", leads from {message:?} not to {named}"
        );
    }
}

#[test]
fn the_message_of_an_uninstalled_block_has_a_row() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    explained(None, &super::uninstalled(&IPBlock::default(), now));
}

#[test]
fn each_refusal_has_a_row_with_its_reason() {
    let target = |text: &str| -> Target { text.parse().unwrap() };
    let policy = Policy {
        allowlist: ["203.0.113.9", "198.51.100.0/24"]
            .map(target)
            .into_iter()
            .collect(),
        protected: Prefixes::from_iter([Protected {
            target: target("192.0.2.1"),
            what: "the API server".into(),
        }]),
        ..Policy::default()
    };
    let mut kinds = Vec::new();
    for banned in [
        "203.0.113.9",
        "198.51.100.7",
        "203.0.113.0/24",
        "64:ff9b::cb00:7109",
        "192.0.2.1",
        "192.0.2.0/24",
        "127.0.0.1",
        "10.0.0.0/8",
    ] {
        let refusal = policy.refusal(&target(banned)).expect(banned);
        let reason = match refusal.kind {
            RefusalKind::Allowlisted => "`Allowlisted`",
            RefusalKind::Protected => "`Protected`",
            RefusalKind::TooWide => "`RangeTooWide`",
        };
        leads(&refusal.message, reason);
        kinds.push(refusal.kind);
    }
    kinds.dedup();
    assert_eq!(kinds.len(), 3);
}

#[test]
fn each_cap_and_brake_has_a_row_with_its_reason() {
    let most = 7;
    for held in [
        Held::Active {
            scope: Scope::All,
            most,
        },
        Held::Active {
            scope: Scope::Engine {
                name: "xdp",
                ipv6: false,
            },
            most,
        },
        Held::Rate {
            scope: Scope::Namespace("web".into()),
            most,
            room_in: Duration::from_secs(1),
        },
        Held::Braked {
            most,
            id: "bans-1".into(),
        },
    ] {
        let reason = match held {
            Held::Active { .. } | Held::Rate { .. } => "`Limited`",
            Held::Braked { .. } => "`Braked`",
        };
        leads(&format!("not banned yet: {held}"), reason);
        let ends = "(given up at 2026-01-01T00:00:00Z)";
        leads(&format!("not banned yet {ends}: {held}"), reason);
    }
}

/// Exactly one row is for `message`, and it names `reason`.
fn leads(message: &str, reason: &str) {
    let rows = rows();
    let found: Vec<&str> = rows
        .iter()
        .filter(|row| row.begins(message))
        .map(|row| row.see)
        .collect();
    assert!(
        found.iter().any(|see| see.contains(reason)),
        "{message:?} leads to {found:?} and not to {reason}"
    );
}

#[test]
fn each_row_has_words_of_the_code() {
    for pattern in rows().iter().flat_map(|row| &row.patterns) {
        let pieces = pattern
            .split('…')
            .map(|piece| piece.trim_matches([' ', '(', ')', ',', ':']));
        let words = pieces.max_by_key(|piece| piece.len()).unwrap();
        let found = SOURCES.iter().any(|source| source.contains(words));
        assert!(found, "no message has {words:?} of the row {pattern:?}");
    }
}

#[test]
fn a_pattern_fits_the_begin_of_a_message_and_its_parts_in_their_order() {
    assert!(begins(
        "… is banned by … until …",
        "a is banned by b until c"
    ));
    assert!(!begins("… is banned by … until …", "a is banned by b"));
    assert!(!begins("waiting for …", "not waiting for b"));
    let row = Row {
        patterns: vec!["… stays banned by …"],
        see: "",
    };
    assert!(row.explains("not banned; a stays banned by x"));
    assert!(!row.explains("not banned; a stays") && !row.begins("not banned"));
}
