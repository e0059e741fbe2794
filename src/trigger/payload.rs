//! How the bodies of a trigger are read.

use super::alerts::{Alerts, Unreadable};
use super::kind::Kind;
use super::labels::Labels;
use super::mapping::Mapping;
use super::{alertmanager, generic, grafana};

/// The payload of a trigger, and where the parts of a ban are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Which payload, with its settings.
    pub form: Form,
    /// Whether ranges are banned.
    pub allow_ranges: bool,
}

/// A payload with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Grafana's webhook.
    Grafana(Labels),
    /// Alertmanager's webhook.
    Alertmanager(Labels),
    /// Any JSON document.
    Generic(Box<Mapping>),
}

// === impl Payload ===

impl Payload {
    /// The kind of the payload.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.form {
            Form::Grafana(_) => Kind::Grafana,
            Form::Alertmanager(_) => Kind::Alertmanager,
            Form::Generic(_) => Kind::Generic,
        }
    }

    /// Reads the alerts of a body. Pure.
    pub(crate) fn read(&self, body: &[u8]) -> Result<Alerts, Unreadable> {
        match &self.form {
            Form::Grafana(labels) => grafana::read(body, labels, self.allow_ranges),
            Form::Alertmanager(labels) => alertmanager::read(body, labels, self.allow_ranges),
            Form::Generic(mapping) => generic::read(body, mapping, self.allow_ranges),
        }
    }
}
