//! What the configuration says about an address, as far as the caller may read it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::keys;
use crate::policy::{Policy, RefusalKind};
use crate::prefix::Prefixes;
use crate::target::Target;

/// The rules that an answer is made with.
#[derive(Clone, Debug, Default)]
pub struct Rules<'a> {
    /// What may be banned at all; `None`: not known, see `unknown`.
    pub policy: Option<&'a Policy>,
    /// The texts of the ConfigMap, for the line of an entry.
    pub texts: Option<&'a BTreeMap<String, String>>,
    /// How long alerts leave an address alone after `spec.unblock`.
    pub unblock_grace: Option<Duration>,
    /// What could not be read, each as a sentence. It is repeated in every answer that it may change.
    pub unknown: Vec<String>,
}

/// A rule that refuses a ban.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The rule in one word: `Allowlisted`, `Protected`, `RangeTooWide`.
    pub reason: String,
    /// The rule in a sentence, with the line of the ConfigMap where it has one.
    pub message: String,
}

// === impl Rules ===

impl Rules<'_> {
    /// Why `target` may not be banned; `None`: it may, or the rules are not known.
    #[must_use]
    pub fn refusal(&self, target: &Target) -> Option<Refused> {
        let refusal = self.policy?.refusal(target)?;
        let mut message = refusal.message;
        if let Some((key, line)) = self.line(target, refusal.kind, &message) {
            // Before the remedy, which follows a semicolon.
            let end = message.find("; ").unwrap_or(message.len());
            message.insert_str(end, &format!(" ({key}, line {line})"));
        }
        Some(Refused {
            reason: refusal.kind.as_str().to_owned(),
            message,
        })
    }

    /// The key and line of the first entry that keeps `target` from being banned, where an entry does.
    fn line(
        &self,
        target: &Target,
        kind: RefusalKind,
        message: &str,
    ) -> Option<(&'static str, usize)> {
        let key = match kind {
            RefusalKind::Allowlisted => keys::WHITELIST,
            RefusalKind::Protected if message.contains(keys::PROTECTED_RANGES) => {
                keys::PROTECTED_RANGES
            }
            RefusalKind::Protected | RefusalKind::TooWide => return None,
        };
        let text = self.texts?.get(key)?;
        let position = text.lines().position(|line| stands_for(line, target))?;
        Some((key, position + 1))
    }
}

/// Whether the entry in `line` meets `target`. Attributes may follow the address, and a comment.
fn stands_for(line: &str, target: &Target) -> bool {
    let entry = line.split('#').next().unwrap_or_default();
    let address = entry.split_whitespace().next().unwrap_or_default();
    address.parse().is_ok_and(|entry| {
        let mut only = Prefixes::new();
        only.add(entry, ());
        only.meeting(target).is_some()
    })
}
