//! The rules of ownership: what a change and a merge take from each manager, and what an apply removes.
//!
//! (structured-merge-diff: `merge.Updater`.)

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::super::schema::Schema;
use super::super::set::Set;
use super::super::walk::{self, Comparison, Duplicates, Problems};
use super::conflict::Conflict;
use super::entry::Entry;
use super::error::ApplyError;
use super::kind::{Kind, Version};
use super::managers::Managers;

/// Follows ownership through the writes of one kind in one version.
pub(super) struct Updater<'a> {
    pub(super) kind: &'a Kind,
    pub(super) api_version: &'a str,
    pub(super) version: &'a Version,
}

/// The result of an apply.
pub(super) struct Applied {
    /// The merged object; `None` if it equals the live one.
    pub(super) object: Option<Value>,
    pub(super) managers: Managers,
}

// === impl Updater ===

impl Updater<'_> {
    /// What a write of `new` over `live` makes of the managers. `entry` names the writer, and gets what the write
    /// changed. Both objects are valid.
    pub(super) fn update(
        &self,
        live: &Value,
        new: &Value,
        managers: Managers,
        mut entry: Entry,
    ) -> Result<Managers, ApplyError> {
        let managers = self.reconciled(live, managers)?;
        let id = entry.id();
        let (mut managers, changes) = self.change(live, new, managers, &id, true)?;
        let own = managers.take(&id).map(|entry| entry.fields);
        let mut fields = own.unwrap_or_default();
        fields.remove(&changes.removed);
        let changed = changes.modified.joined(changes.added);
        let fields = fields.joined(changed).without(&self.version.ignored);
        if !fields.is_empty() {
            entry.fields = fields;
            managers.put(entry);
        }
        Ok(managers)
    }

    /// Merges `applied` into `live` for the manager that `entry` names. Both objects are valid.
    pub(super) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        managers: Managers,
        mut entry: Entry,
        force: bool,
    ) -> Result<Applied, ApplyError> {
        let schema = &*self.version.schema;
        let mut managers = self.reconciled(live, managers)?;
        let merged = walk::merge(schema, schema.root(), live, applied)
            .map_err(failed("failed to merge config"))?;
        let id = entry.id();
        let last = managers.take(&id);
        entry.fields = walk::to_set(schema, schema.root(), applied)
            .map_err(failed("failed to get field set"))?
            .without(&self.version.ignored);
        managers.put(entry);
        let pruned = self.prune(merged, &managers, last.as_ref())?;
        let (managers, _) = self.change(live, &pruned, managers, &id, force)?;
        let is_same = super::super::literal::equal(live, &pruned);
        Ok(Applied {
            object: (!is_same).then_some(pruned),
            managers,
        })
    }

    /// What a change takes from the managers other than `writer`: changed fields need `force`, and removed ones have
    /// no owner any more.
    fn change(
        &self,
        live: &Value,
        new: &Value,
        mut managers: Managers,
        writer: &str,
        force: bool,
    ) -> Result<(Managers, Comparison), ApplyError> {
        let compared = |version: &Version, live: &Value, new: &Value| {
            let schema = &*version.schema;
            walk::compare(schema, schema.root(), live, new)
                .map(|changes| changes.without(&version.ignored))
                .map_err(failed("failed to compare objects"))
        };
        let own = compared(self.version, live, new)?;
        if managers.iter().all(|(id, _)| id == writer) {
            managers.retain(|_, entry| (!entry.fields.is_empty()).then_some(entry));
            return Ok((managers, own));
        }
        // With what it modified or added, which other managers lose.
        let with_changed = |changes: Comparison| {
            let changed = changes.modified.union(&changes.added);
            (changes, changed)
        };
        let mut by_version: BTreeMap<String, (Comparison, Set)> = BTreeMap::new();
        by_version.insert(self.api_version.to_owned(), with_changed(own));
        for (_, entry) in managers.iter() {
            if by_version.contains_key(&entry.api_version) {
                continue;
            }
            let Some(version) = self.kind.version(&entry.api_version) else {
                continue;
            };
            let live = self.converted(live, &entry.api_version, version)?;
            let new = self.converted(new, &entry.api_version, version)?;
            let changes = with_changed(compared(version, &live, &new)?);
            by_version.insert(entry.api_version.clone(), changes);
        }
        let mut conflicts = Vec::new();
        managers.retain(|id, entry| {
            if id == writer {
                return Some(entry);
            }
            // A version that is not served any more has no owners.
            let (changes, changed) = by_version.get(&entry.api_version)?;
            let mut entry = entry;
            if entry.fields.meets(changed) {
                let taken = entry.fields.intersection(changed);
                if !force {
                    conflicts.extend(Conflict::all(&entry, &taken));
                }
                entry.fields.remove(&taken);
            }
            entry.fields.remove(&changes.removed);
            Some(entry)
        });
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        managers.retain(|_, entry| (!entry.fields.is_empty()).then_some(entry));
        let own = by_version.remove(self.api_version);
        Ok((
            managers,
            own.map(|(changes, _)| changes).unwrap_or_default(),
        ))
    }

    /// `merged` without what the manager applied `last` time, does not apply now, and has no other owner.
    fn prune(
        &self,
        merged: Value,
        managers: &Managers,
        last: Option<&Entry>,
    ) -> Result<Value, ApplyError> {
        let Some(last) = last.filter(|last| !last.fields.is_empty()) else {
            return Ok(merged);
        };
        let Some(version) = self.kind.version(&last.api_version) else {
            return Ok(merged);
        };
        let schema = &*version.schema;
        let merged = self
            .converted(&merged, &last.api_version, version)?
            .into_owned();
        let removed = named(schema, &last.fields);
        let pruned = walk::remove(schema, schema.root(), &merged, &removed);
        let pruned = self.with_owned(&merged, pruned, managers, &last.api_version)?;
        let pruned = with_unowned(schema, &merged, &pruned, &removed)?;
        Ok(self
            .converted(&pruned, self.api_version, self.version)?
            .into_owned())
    }

    /// Adds back what a manager owns, in the version of the last apply first.
    fn with_owned(
        &self,
        merged: &Value,
        pruned: Value,
        managers: &Managers,
        last_version: &str,
    ) -> Result<Value, ApplyError> {
        let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
        for (_, entry) in managers.iter() {
            let fields = owned.entry(&entry.api_version).or_default();
            *fields = fields.union(&entry.fields);
        }
        let first = owned.remove_entry(last_version);
        let mut pruned = pruned;
        for (api_version, fields) in first.into_iter().chain(owned) {
            let Some(version) = self.kind.version(api_version) else {
                continue;
            };
            let schema = &*version.schema;
            let merged = self.converted(merged, api_version, version)?;
            let present = self.converted(&pruned, api_version, version)?;
            let all = fields_of(schema, &merged)?;
            let kept = fields_of(schema, &present)?.union(&named(schema, &fields));
            pruned = walk::remove(schema, schema.root(), &merged, &all.difference(&kept));
        }
        if let Some(version) = self.kind.version(last_version) {
            pruned = self.converted(&pruned, last_version, version)?.into_owned();
        }
        Ok(pruned)
    }

    /// The managers with their fields as the present schema has them.
    fn reconciled(&self, live: &Value, mut managers: Managers) -> Result<Managers, ApplyError> {
        let mut result = Ok(());
        managers.retain(|_, entry| {
            let version = self.kind.version(&entry.api_version)?;
            if let Err(error) = self.converted(live, &entry.api_version, version) {
                result = Err(error);
            }
            let schema = &*version.schema;
            match walk::reconcile(schema, schema.root(), &entry.fields) {
                Some(fields) => Some(entry.with_fields(fields)),
                None => Some(entry),
            }
        });
        result.map(|()| managers)
    }

    /// The object in another version.
    fn converted<'b>(
        &self,
        object: &'b Value,
        api_version: &str,
        version: &Version,
    ) -> Result<Cow<'b, Value>, ApplyError> {
        if object["apiVersion"] == api_version {
            return Ok(Cow::Borrowed(object));
        }
        let object = self.kind.convert(object, api_version);
        let object = object
            .map_err(|why| ApplyError::Unprocessable(format!("failed to convert object: {why}")))?;
        let schema = &*version.schema;
        walk::validate(schema, schema.root(), &object, Duplicates::Allowed)
            .map_err(failed("failed to convert object"))?;
        Ok(Cow::Owned(object))
    }
}

/// Adds back what the manager did not own: `merged` without what is missing in `pruned` and was `removed`.
fn with_unowned(
    schema: &Schema,
    merged: &Value,
    pruned: &Value,
    removed: &Set,
) -> Result<Value, ApplyError> {
    let missing = fields_of(schema, merged)?.difference(&fields_of(schema, pruned)?);
    let owned = missing.intersection(removed);
    Ok(walk::remove(schema, schema.root(), merged, &owned))
}

/// The fields of an object, the declared ones included.
fn fields_of(schema: &Schema, object: &Value) -> Result<Set, ApplyError> {
    walk::to_set(schema, schema.root(), object)
        .map(|fields| named(schema, &fields))
        .map_err(failed("failed to create field set"))
}

fn named(schema: &Schema, fields: &Set) -> Set {
    fields.with_named_fields(schema, Some(schema.root()))
}

/// The error for problems that validation leaves only in objects of an older schema.
fn failed(what: &'static str) -> impl Fn(Problems) -> ApplyError {
    move |problems| ApplyError::Unprocessable(format!("{what}: {}", walk::text(&problems)))
}
