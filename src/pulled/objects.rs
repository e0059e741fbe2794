//! What a source is kept as, and the limits that follow from it.

use crate::api;

/// The kind of the objects that a source becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objects {
    /// An IPBlock for each entry: with a history, notifications, and a call of the gateway.
    #[default]
    Blocks,
    /// BlockLists of up to 5,000 entries, for set engines alone.
    Lists,
}

/// The bounds of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Entries: the default, and the most.
    pub(super) entries: (usize, usize),
    /// Bytes of an answer: the default, and the most.
    pub(super) bytes: (usize, usize),
}

const MIB: usize = 1024 * 1024;

// === impl Objects ===

impl Objects {
    /// The kind that `text` names.
    pub(super) fn named(text: &str) -> Result<Self, String> {
        match text {
            "IPBlock" => Ok(Self::Blocks),
            "BlockList" => Ok(Self::Lists),
            other => Err(format!("{other:?} is neither IPBlock nor BlockList")),
        }
    }

    /// A decision of CrowdSec has texts of its own, so that fewer of them are taken.
    pub(super) fn bounds(self, crowdsec: bool) -> Bounds {
        match self {
            Self::Blocks => Bounds {
                entries: (1_000, api::MOST_ENTRIES),
                bytes: (MIB, 16 * MIB),
            },
            Self::Lists => Bounds {
                entries: (100_000, if crowdsec { 100_000 } else { 1_000_000 }),
                bytes: (32 * MIB, 64 * MIB),
            },
        }
    }
}

/// Whether `name` can be the beginning of the names of objects, and the value of a label.
pub(super) fn is_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.len() <= 63
        && name.chars().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
