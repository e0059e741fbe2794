//! The entries of an object, by identity.

use std::collections::BTreeMap;

use serde_json::Value;

use super::entry::{Entry, Kind};

/// The entries of an object. Those of one identity are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers(BTreeMap<String, Entry>);

// === impl Managers ===

impl Managers {
    /// Reads `metadata.managedFields`.
    ///
    /// # Errors
    /// Why an entry cannot be read.
    pub(crate) fn decode(list: &Value) -> Result<Self, String> {
        let mut managers = Self::default();
        for (at, entry) in list.as_array().into_iter().flatten().enumerate() {
            managers.put(Entry::decode(entry, at)?);
        }
        Ok(managers)
    }

    /// The form in `metadata.managedFields`: applied ones first, then by time and manager. `None` if there are none.
    pub(crate) fn encode(&self) -> Option<Value> {
        let mut entries: Vec<&Entry> = self.0.values().collect();
        entries.sort_by(|one, other| order(one).cmp(&order(other)));
        let entries: Vec<Value> = entries.into_iter().map(Entry::encode).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Entry> {
        self.0.get(id)
    }

    /// All entries, sorted by identity.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.0.iter()
    }

    /// Adds an entry under its identity.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.0.insert(entry.id(), entry);
    }

    /// Adds an entry under another identity than its own, beside one that may have it.
    pub(crate) fn put_as(&mut self, id: String, entry: Entry) {
        self.0.insert(id, entry);
    }

    pub(crate) fn take(&mut self, id: &str) -> Option<Entry> {
        self.0.remove(id)
    }

    /// Replaces or drops each entry.
    pub(crate) fn retain(&mut self, mut change: impl FnMut(&str, Entry) -> Option<Entry>) {
        let entries = std::mem::take(&mut self.0);
        let changed = entries
            .into_iter()
            .filter_map(|(id, entry)| change(&id, entry).map(|entry| (id, entry)));
        self.0 = changed.collect();
    }
}

fn order(entry: &Entry) -> (Kind, &str, &str, &str, &str) {
    (
        entry.kind,
        entry.time.as_deref().unwrap_or_default(),
        &entry.manager,
        &entry.api_version,
        &entry.subresource,
    )
}
