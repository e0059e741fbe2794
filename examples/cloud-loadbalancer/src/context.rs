//! The context of one request: the Service, its marks, its Events, and the writes of it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use reeve_controller::client::{Error, Patch};
use reeve_controller::events::EventType;
use reeve_controller::{Context, ObjectKey, finalizer};
use serde_json::{Value, json};

use crate::identity::{FINALIZER, HASH_LABEL, ID_LABEL, NOTE_ANNOTATION, Note, Owner, recorded};
use crate::model::LbId;

/// The context of one request.
pub(crate) struct RequestContext {
    pub(crate) ctx: Context,
    pub(crate) key: ObjectKey,
    /// The Service, with the changes of this request.
    pub(crate) service: Arc<Service>,
    pub(crate) owner: Owner,
    pub(crate) note: Note,
}

/// The labels and the note to write.
#[derive(Debug, Default)]
pub(crate) struct Marks<'a> {
    pub(crate) id: Option<&'a LbId>,
    pub(crate) hash: Option<&'a str>,
}

// === impl RequestContext ===

impl RequestContext {
    /// The id of the recorded load balancer.
    pub(crate) fn recorded(&self) -> Option<LbId> {
        recorded(&self.service)
    }

    /// The hash that was applied last.
    pub(crate) fn hash(&self) -> Option<&str> {
        let labels = self.service.metadata.labels.as_ref()?;
        labels.get(HASH_LABEL).map(String::as_str)
    }

    pub(crate) fn normal(&self, reason: &str, action: &str, note: impl Into<String>) {
        let events = self.ctx.events();
        events.event(&self.service, EventType::Normal, reason, action, note);
    }

    pub(crate) fn warning(&self, reason: &str, action: &str, note: impl Into<String>) {
        let events = self.ctx.events();
        events.event(&self.service, EventType::Warning, reason, action, note);
    }

    /// Stores the finalizer and the note, if the Service is still as this request saw it: the write fails with a
    /// conflict if the cache was behind. It is the last step before a creation in the cloud, so that a load balancer
    /// never exists without a finalizer, nor is created for a Service that is being deleted.
    pub(crate) async fn claim(&mut self, note: Note) -> Result<(), Error> {
        let meta = &self.service.metadata;
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|one| one == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "finalizers": finalizers,
            "annotations": {NOTE_ANNOTATION: note.text()},
        }});
        self.patch(patch).await?;
        self.note = note;
        Ok(())
    }

    /// Writes the marks: what is `None` is removed.
    pub(crate) async fn mark(&mut self, marks: Marks<'_>, note: Note) -> Result<(), Error> {
        let patch = json!({"metadata": {
            "uid": self.service.metadata.uid,
            "labels": {ID_LABEL: marks.id, HASH_LABEL: marks.hash},
            "annotations": {NOTE_ANNOTATION: note.text()},
        }});
        self.patch(patch).await?;
        self.note = note;
        Ok(())
    }

    /// Removes the marks and, if `finalizer`, the finalizer. It is the last write of a removal.
    pub(crate) async fn release(&mut self, finalizer: bool) -> Result<(), Error> {
        let mut patch = json!({"metadata": {
            "uid": self.service.metadata.uid,
            "labels": {ID_LABEL: null, HASH_LABEL: null},
            "annotations": {NOTE_ANNOTATION: null},
        }});
        let removal = finalizer::remove_patch(&self.service, FINALIZER).filter(|_| finalizer);
        if let Some(Value::Object(removal)) = removal.map(|mut all| all["metadata"].take()) {
            for (field, value) in removal {
                patch["metadata"][field] = value;
            }
        }
        self.patch(patch).await
    }

    /// Writes `status.loadBalancer.ingress` if it differs, and returns whether it did.
    pub(crate) async fn publish(&mut self, wanted: &[LoadBalancerIngress]) -> Result<bool, Error> {
        let status = self.service.status.as_ref();
        let balancer = status.and_then(|status| status.load_balancer.as_ref());
        let is = balancer.and_then(|balancer| balancer.ingress.as_deref());
        if is_published(is.unwrap_or_default(), wanted) {
            return Ok(false);
        }
        let ingress = if wanted.is_empty() {
            Value::Null
        } else {
            json!(wanted)
        };
        let patch = json!({
            "metadata": {"uid": self.service.metadata.uid},
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        let services = self.ctx.client().objects::<Service>();
        let written = services
            .patch_status(&self.key, Patch::merge(patch))
            .await?;
        self.service = Arc::new(written);
        Ok(true)
    }

    async fn patch(&mut self, patch: Value) -> Result<(), Error> {
        let client = self.ctx.client();
        let written = client
            .patch::<Service>(&self.key, Patch::merge(patch))
            .await?;
        self.service = Arc::new(written);
        Ok(())
    }
}

/// Whether the status is as wanted. A server before 1.29 drops the mode, so one without a mode is as wanted.
fn is_published(is: &[LoadBalancerIngress], wanted: &[LoadBalancerIngress]) -> bool {
    let same = |(is, wanted): (&LoadBalancerIngress, &LoadBalancerIngress)| {
        let mode_fits = is.ip_mode.is_none() || is.ip_mode == wanted.ip_mode;
        mode_fits && (&is.ip, &is.hostname) == (&wanted.ip, &wanted.hostname)
    };
    is.len() == wanted.len() && is.iter().zip(wanted).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_whose_mode_the_server_dropped_is_not_written_again() {
        let entry = |ip: &str, mode: Option<&str>| LoadBalancerIngress {
            ip: Some(ip.to_owned()),
            ip_mode: mode.map(str::to_owned),
            ..LoadBalancerIngress::default()
        };
        let wanted = [entry("192.0.2.1", Some("Proxy"))];
        for (is, expected) in [
            (vec![entry("192.0.2.1", Some("Proxy"))], true),
            (vec![entry("192.0.2.1", None)], true),
            (vec![entry("192.0.2.1", Some("VIP"))], false),
            (vec![entry("192.0.2.2", Some("Proxy"))], false),
            (vec![], false),
        ] {
            assert_eq!(is_published(&is, &wanted), expected, "{is:?}");
        }
    }
}
