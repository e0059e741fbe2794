//! Reasons of adds: small, merged when adds collapse, handed out with the item.

use std::fmt;

/// Reason of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The object appeared.
    Added,
    /// The object changed.
    Changed,
    /// The object was deleted.
    Deleted,
    /// An object that it owns, or that refers to it, changed.
    Owner,
    /// A periodic run without a change.
    Resync,
    /// An earlier run requeued it for this time ([`Item::requeue_after`](crate::Item::requeue_after)).
    Timer,
    /// An earlier run failed ([`Item::retry`](crate::Item::retry)).
    Retry,
    /// Anything else. A queue distinguishes the first 20 texts; later ones become [`Reason::Other`].
    Custom(&'static str),
    /// A custom reason beyond the first 20.
    Other,
}

/// A set of reasons in one word; custom ones are numbered by [`CustomReasons`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReasonBits(u32);

/// The texts of the custom reasons of a queue.
#[derive(Debug, Default)]
pub(crate) struct CustomReasons(Vec<&'static str>);

const PLAIN: [Reason; 8] = [
    Reason::Added,
    Reason::Changed,
    Reason::Deleted,
    Reason::Owner,
    Reason::Resync,
    Reason::Timer,
    Reason::Retry,
    Reason::Other,
];
const CUSTOM_LIMIT: usize = 20;

// === impl Reason ===

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Owner => "owner",
            Self::Resync => "resync",
            Self::Timer => "timer",
            Self::Retry => "retry",
            Self::Custom(text) => text,
            Self::Other => "other",
        })
    }
}

/// Serialises as its text.
#[cfg(feature = "serde")]
impl serde::Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// === impl ReasonBits ===

impl ReasonBits {
    /// The bits of one reason; `None` for a custom one, whose number only the queue has.
    pub(crate) fn plain(reason: Reason) -> Option<Self> {
        let bit = PLAIN.iter().position(|&plain| plain == reason)?;
        Some(Self(1 << bit))
    }

    /// Whether there is no custom reason.
    pub(crate) fn are_plain(self) -> bool {
        self.0 >> PLAIN.len() == 0
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

// === impl CustomReasons ===

impl CustomReasons {
    pub(crate) fn encode(&mut self, reason: Reason) -> ReasonBits {
        let Reason::Custom(text) = reason else {
            return ReasonBits::plain(reason).unwrap_or_default();
        };
        let bit = match self.0.iter().position(|&known| known == text) {
            Some(index) => PLAIN.len() + index,
            None if self.0.len() < CUSTOM_LIMIT => {
                self.0.push(text);
                PLAIN.len() + self.0.len() - 1
            }
            None => PLAIN.len() - 1,
        };
        ReasonBits(1 << bit)
    }

    pub(crate) fn decode(&self, bits: ReasonBits) -> Vec<Reason> {
        let plain = PLAIN.iter().copied();
        let custom = self.0.iter().map(|&text| Reason::Custom(text));
        plain
            .chain(custom)
            .enumerate()
            .filter(|(bit, _)| bits.0 & (1 << bit) != 0)
            .map(|(_, reason)| reason)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_merge_and_read_back() {
        let mut custom = CustomReasons::default();
        let mut bits = custom.encode(Reason::Resync);
        bits.merge(custom.encode(Reason::Custom("config")));
        bits.merge(custom.encode(Reason::Added));
        bits.merge(custom.encode(Reason::Custom("config")));
        assert_eq!(
            custom.decode(bits),
            [Reason::Added, Reason::Resync, Reason::Custom("config")]
        );
    }

    #[test]
    fn a_custom_reason_too_many_is_other() {
        let mut custom = CustomReasons::default();
        for number in 0..CUSTOM_LIMIT {
            let text: &'static str = Box::leak(format!("reason {number}").into_boxed_str());
            let bits = custom.encode(Reason::Custom(text));
            assert_eq!(custom.decode(bits), [Reason::Custom(text)]);
        }
        let bits = custom.encode(Reason::Custom("one too many"));
        assert_eq!(custom.decode(bits), [Reason::Other]);
    }
}
