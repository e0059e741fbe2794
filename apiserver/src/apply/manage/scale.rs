//! The owners of the number of replicas, as the scale subresource sees them.
//!
//! (apimachinery: `managedfields.ScaleHandler`.)

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::path::Element;
use super::super::set::Set;
use super::entry::Entry;
use super::managers::Managers;

const SCALE: &str = "autoscaling/v1";

/// Translates the managers of an object to those of its scale, and back.
#[derive(Clone, Debug)]
pub(crate) struct ScaleFields {
    /// The path of the replicas by apiVersion; `None` for a version without the subresource.
    paths: BTreeMap<String, Option<Vec<Element>>>,
    /// The version of the request.
    api_version: String,
}

// === impl ScaleFields ===

impl ScaleFields {
    /// For requests in `api_version`. The paths have the form `.spec.replicas`.
    pub(crate) fn new<'a>(
        api_version: &str,
        paths: impl IntoIterator<Item = (String, Option<&'a str>)>,
    ) -> Self {
        let elements = |path: &str| -> Vec<Element> {
            let names = path.trim_start_matches('.').split('.');
            names.map(Element::field).collect()
        };
        Self {
            paths: paths
                .into_iter()
                .map(|(version, path)| (version, path.map(elements)))
                .collect(),
            api_version: api_version.to_owned(),
        }
    }

    /// The managers of the scale: those that own the replicas.
    ///
    /// # Errors
    /// Why the managers cannot be read.
    pub(crate) fn of_scale(&self, parent: &Value) -> Result<Option<Value>, String> {
        let mut managers = Managers::decode(parent)?;
        managers.retain(|_, entry| {
            let path = self.paths.get(&entry.api_version)?.as_ref()?;
            entry.fields.has(path).then(|| Entry {
                api_version: SCALE.to_owned(),
                ..entry.with_fields(replicas())
            })
        });
        Ok(managers.encode())
    }

    /// The managers of the object after a write of its scale, whose managers are `scale`.
    ///
    /// # Errors
    /// Why managers cannot be read.
    pub(crate) fn of_parent(&self, parent: &Value, scale: &Value) -> Result<Option<Value>, String> {
        let mut managers = Managers::decode(parent)?;
        let mut of_scale = Managers::decode(scale)?;
        let times: BTreeMap<String, Option<String>> = managers
            .iter()
            .map(|(id, entry)| (id.clone(), entry.time.clone()))
            .collect();
        managers.retain(|id, entry| {
            let Some(path) = self.paths.get(&entry.api_version)? else {
                return Some(entry);
            };
            if !entry.fields.has(path) {
                return Some(entry);
            }
            if of_scale.take(id).is_some() {
                return Some(entry);
            }
            // The write took the replicas.
            let mut taken = Set::default();
            taken.insert(path);
            let fields = entry.fields.difference(&taken);
            (!fields.is_empty()).then(|| entry.with_fields(fields))
        });
        let path = self.paths.get(&self.api_version).and_then(Option::as_ref);
        for (id, entry) in of_scale.iter() {
            let Some(path) = path.filter(|_| entry.fields.has(&replicas_path())) else {
                continue;
            };
            let mut fields = Set::default();
            fields.insert(path);
            let entry = Entry {
                api_version: self.api_version.clone(),
                // A real server looks for the time under the identity in the scale: an update has none there.
                time: times.get(id).cloned().flatten(),
                ..entry.with_fields(fields)
            };
            managers.put_as(id.clone(), entry);
        }
        Ok(managers.encode())
    }
}

fn replicas_path() -> Vec<Element> {
    vec![Element::field("spec"), Element::field("replicas")]
}

fn replicas() -> Set {
    let mut fields = Set::default();
    fields.insert(&replicas_path());
    fields
}
