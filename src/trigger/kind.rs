//! The list of payloads that a trigger can receive.

use super::credentials::GRAFANA_HMAC_HEADER;

/// The payload of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Grafana's webhook contact point.
    Grafana,
    /// Alertmanager's webhook, version 4.
    Alertmanager,
    /// Any JSON document, read by a mapping.
    Generic,
}

// === impl Kind ===

impl Kind {
    /// Every payload.
    pub const ALL: &[Self] = &[Self::Grafana, Self::Alertmanager, Self::Generic];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grafana => "grafana",
            Self::Alertmanager => "alertmanager",
            Self::Generic => "generic",
        }
    }

    /// The payload of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The names of all payloads, for messages.
    pub(crate) fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
        names.join(" or ")
    }

    /// The header of the signature, unless the configuration names another. Alertmanager does not sign: it sends a bearer
    /// token.
    pub(super) fn hmac_header(self) -> &'static str {
        match self {
            Self::Grafana => GRAFANA_HMAC_HEADER,
            Self::Alertmanager | Self::Generic => "X-Signature",
        }
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
