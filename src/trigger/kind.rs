//! The list of payloads that a trigger can receive.

use super::alerts::{Alerts, Format, Unreadable};
use super::grafana;

/// The payload of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Grafana's webhook contact point.
    Grafana,
}

// === impl Kind ===

impl Kind {
    /// Every payload.
    pub const ALL: &[Self] = &[Self::Grafana];

    fn format(self) -> Format {
        match self {
            Self::Grafana => grafana::FORMAT,
        }
    }

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.format().name
    }

    /// The payload of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The names of all payloads, for messages.
    pub(super) fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
        names.join(" or ")
    }

    /// The header of the signature, unless the configuration names another.
    pub(super) fn hmac_header(self) -> &'static str {
        self.format().hmac_header
    }

    /// Reads the alerts of a body.
    pub(super) fn read(self, body: &[u8], allow_ranges: bool) -> Result<Alerts, Unreadable> {
        (self.format().read)(body, allow_ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_has_the_name_it_is_found_by_and_a_header_for_its_signature() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.name()), Some(*kind));
            assert!(http::HeaderName::try_from(kind.hmac_header()).is_ok());
        }
        assert_eq!(Kind::of("smoke-signals"), None);
    }
}
