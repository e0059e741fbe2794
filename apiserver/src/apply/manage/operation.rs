//! One write, and what it makes of the managers.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::super::schema::Schema;
use super::super::set::Set;
use super::super::walk::{self, Duplicates};
use super::entry::{Entry, Kind as Way};
use super::error::ApplyError;
use super::kept::Kept;
use super::kind::{Kind, Version};
use super::managers::Managers;
use super::updater::{Applied, Updater};
use super::{cap, last_applied};

/// The manager of the fields that an object has before its first apply, if nothing is known of them.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager of writes without a name.
const UNKNOWN: &str = "unknown";
/// Collects what a write changes, until it is known that it changes something.
const CURRENT: &str = "current-operation";

/// Fields that have no owner.
const STRIPPED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

static STRIPPED_SET: LazyLock<Set> = LazyLock::new(|| Set::of(STRIPPED));

/// One write of an object.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    /// The versions of the kind.
    pub(crate) of: &'a Kind,
    /// The version of the request.
    pub(crate) api_version: &'a str,
    /// The kind's name.
    pub(crate) kind: &'a str,
    /// The subresource of the request; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The manager's name; may be empty.
    pub(crate) manager: &'a str,
    /// The time of the write in the format of `metadata`.
    pub(crate) now: &'a str,
    /// An object of the kind as its Go type has it without any field set.
    pub(crate) empty: &'a Value,
}

/// What an apply makes of an object.
#[derive(Debug)]
pub(crate) struct Merge {
    /// The object with its managedFields. It is not defaulted.
    pub(crate) object: Value,
    /// Whether more than owners changed.
    pub(crate) changes: bool,
}

// === impl Operation ===

impl Operation<'_> {
    /// `managedFields` after a write of `new` over `live`, which is [`Operation::empty`] for a creation. `None` if the
    /// object has none.
    pub(crate) fn update(&self, live: &Value, new: &Value) -> Option<Value> {
        let (mut live, mut new) = (live.clone(), new.clone());
        let of_live = take_managers(&mut live).unwrap_or_default();
        let sent = take_managers(&mut new).unwrap_or_default();
        self.update_apart(&live, &of_live, &new, &sent)
    }

    /// [`Operation::update`] of objects without managedFields, which are apart.
    pub(crate) fn update_apart(
        &self,
        live: &Value,
        of_live: &Value,
        new: &Value,
        sent: &Value,
    ) -> Option<Value> {
        if let Some(kept) = self.kept(live, of_live, new, sent) {
            #[cfg(test)]
            assert_eq!(
                Some(&kept),
                self.update_read(live, of_live, new, sent).as_ref()
            );
            return Some(kept);
        }
        self.update_read(live, of_live, new, sent)
    }

    /// [`Operation::update_apart`] in any case: it reads what the managers own.
    fn update_read(
        &self,
        live: &Value,
        of_live: &Value,
        new: &Value,
        sent: &Value,
    ) -> Option<Value> {
        let managers = self.managers_of_update(of_live, sent);
        if managers.is_empty() && !uid(live).is_empty() {
            // They were cleared, and nothing was applied since.
            return None;
        }
        // A real server logs an error here, and drops what it knew.
        let managers = self.updated(live, new, managers, self.manager).ok()?;
        managers.encode()
    }

    /// The object after an apply of `applied` to `live`, which is [`Operation::empty`] for a creation, with its
    /// managedFields.
    ///
    /// # Errors
    /// As [`ApplyError`] says.
    pub(crate) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        force: bool,
    ) -> Result<Merge, ApplyError> {
        let managers = Managers::decode(&live["metadata"]["managedFields"]).map_err(|why| {
            ApplyError::Unprocessable(format!("failed to decode managed fields: {why}"))
        })?;
        let text = |field: &str| applied[field].as_str().unwrap_or_default();
        if text("apiVersion") != self.api_version || text("kind") != self.kind {
            return Err(ApplyError::Malformed(format!(
                "invalid object type: {}",
                type_text(text("apiVersion"), text("kind"))
            )));
        }
        let live = without_managers(live);
        let of_kubectl = (self.manager == last_applied::KUBECTL).then(|| managers.clone());
        let result = self.applied(&live, applied, managers, force);
        let result = match (result, of_kubectl) {
            (Err(ApplyError::Conflicts(conflicts)), Some(managers)) => {
                let schema = &self.version()?.schema;
                let Some(allowed) = last_applied::unchanged(schema, self.api_version, &live) else {
                    return Err(ApplyError::Conflicts(conflicts));
                };
                let rest: Vec<_> = conflicts
                    .into_iter()
                    .filter(|conflict| !conflict.is_in(&allowed))
                    .collect();
                if !rest.is_empty() {
                    return Err(ApplyError::Conflicts(rest));
                }
                self.applied(&live, applied, managers, true)
            }
            (result, _) => result,
        }?;
        let changes = result.object.is_some();
        let mut object = result.object.unwrap_or(live);
        if self.manager == last_applied::KUBECTL {
            last_applied::refresh(&mut object, applied);
        }
        set_managers(&mut object, result.managers.encode());
        Ok(Merge { object, changes })
    }

    /// [`Operation::update_apart`] if no manager loses a field by it, without reading what the managers own.
    fn kept(&self, live: &Value, of_live: &Value, new: &Value, sent: &Value) -> Option<Value> {
        let is_kept = !self.subresource.is_empty()
            || sent.as_array().is_none_or(Vec::is_empty)
            || sent == of_live;
        let version = self.version().ok().filter(|_| is_kept)?;
        let kept = Kept::of(of_live, self.api_version, version)?;
        self.check(live, "live", Duplicates::Allowed).ok()?;
        self.check(new, "new", Duplicates::Allowed).ok()?;
        let schema = &*version.schema;
        let changes = walk::compare(schema, schema.root(), live, new).ok()?;
        let mut entry = self.entry(self.manager, Way::Update);
        entry.time = Some(self.now.to_owned());
        kept.after(entry, changes.without(&version.ignored), &STRIPPED_SET)
    }

    /// The managers that an update starts from: those that it sends, or those of the live object.
    fn managers_of_update(&self, of_live: &Value, sent: &Value) -> Managers {
        if !self.subresource.is_empty() {
            return Managers::decode(of_live).unwrap_or_default();
        }
        let entries = sent.as_array();
        // (apimachinery: `isResetManagedFields`. An empty list does not reset.)
        let is_reset = match entries.map(Vec::as_slice) {
            Some([one]) => one.as_object().is_some_and(Map::is_empty),
            _ => false,
        };
        if is_reset {
            return Managers::default();
        }
        match Managers::decode(sent) {
            Ok(managers) if !managers.is_empty() => managers,
            _ => Managers::decode(of_live).unwrap_or_default(),
        }
    }

    /// The managers after an update by `manager`.
    fn updated(
        &self,
        live: &Value,
        new: &Value,
        managers: Managers,
        manager: &str,
    ) -> Result<Managers, ApplyError> {
        let version = self.version()?;
        self.check(live, "live", Duplicates::Allowed)?;
        self.check(new, "new", Duplicates::Allowed)?;
        let current = self.entry(CURRENT, Way::Update);
        let current_id = current.id();
        let updater = self.updater(version);
        let mut managers = updater.update(live, new, managers, current)?;
        strip(&mut managers, &current_id);
        if let Some(current) = managers.take(&current_id) {
            let mut entry = self.entry(manager, Way::Update);
            entry.fields = match managers.get(&entry.id()) {
                Some(previous) => current.fields.joined(previous.fields.clone()),
                None => current.fields,
            };
            entry.time = Some(self.now.to_owned());
            managers.put(entry);
        }
        cap::cap(&mut managers);
        Ok(managers)
    }

    fn applied(
        &self,
        live: &Value,
        applied: &Value,
        managers: Managers,
        force: bool,
    ) -> Result<Applied, ApplyError> {
        let version = self.version()?;
        let managers = if managers.is_empty() {
            self.updated(self.empty, live, managers, BEFORE_FIRST_APPLY)
                .map_err(|error| {
                    ApplyError::Unprocessable(format!(
                        "failed to create manager for existing fields: {error}"
                    ))
                })?
        } else {
            managers
        };
        if applied["metadata"]["managedFields"].is_array() {
            return Err(ApplyError::Malformed(
                "metadata.managedFields must be nil".to_owned(),
            ));
        }
        self.check(applied, "patch", Duplicates::Refused)?;
        self.check(live, "live", Duplicates::Allowed)?;
        let mut entry = self.entry(self.manager, Way::Apply);
        let id = entry.id();
        entry.time = managers.get(&id).and_then(|last| last.time.clone());
        let updater = self.updater(version);
        let mut result = updater.apply(live, applied, managers, entry, force)?;
        strip(&mut result.managers, &id);
        if result.object.is_some()
            && let Some(mut entry) = result.managers.take(&id)
        {
            entry.time = Some(self.now.to_owned());
            result.managers.put(entry);
        }
        Ok(result)
    }

    fn entry(&self, manager: &str, kind: Way) -> Entry {
        let manager = if manager.is_empty() { UNKNOWN } else { manager };
        Entry {
            manager: manager.to_owned(),
            kind,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: None,
            fields: Set::default(),
        }
    }

    fn version(&self) -> Result<&Version, ApplyError> {
        self.of.version(self.api_version).ok_or_else(|| {
            ApplyError::Unprocessable(format!(
                "no corresponding type for {}",
                type_text(self.api_version, self.kind)
            ))
        })
    }

    fn updater<'a>(&'a self, version: &'a Version) -> Updater<'a> {
        Updater {
            kind: self.of,
            api_version: self.api_version,
            version,
        }
    }

    /// Refuses an object that is not of its type.
    fn check(&self, object: &Value, which: &str, duplicates: Duplicates) -> Result<(), ApplyError> {
        let schema: &Schema = &self.version()?.schema;
        walk::validate(schema, schema.root(), object, duplicates).map_err(|problems| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            ApplyError::Unprocessable(format!(
                "failed to create typed {which} object ({}/{}; {}): {}",
                text("namespace"),
                text("name"),
                type_text(self.api_version, self.kind),
                walk::text(&problems)
            ))
        })
    }
}

/// Removes what has no owner from an entry, and the entry if nothing is left.
fn strip(managers: &mut Managers, id: &str) {
    if let Some(entry) = managers.take(id) {
        let mut entry = entry;
        entry.fields.remove(&STRIPPED_SET);
        if !entry.fields.is_empty() {
            managers.put(entry);
        }
    }
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// A type as Go prints it: `apps/v1, Kind=Deployment`.
fn type_text(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

/// Takes `metadata.managedFields` out of an object.
pub(crate) fn take_managers(object: &mut Value) -> Option<Value> {
    object
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")
}

fn without_managers(object: &Value) -> Value {
    let (Some(fields), Some(metadata)) = (object.as_object(), object["metadata"].as_object())
    else {
        return object.clone();
    };
    let metadata = metadata.iter().filter(|(name, _)| *name != "managedFields");
    let metadata: Map<String, Value> = metadata
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let rest = fields.iter().filter(|(name, _)| *name != "metadata");
    let mut object: Map<String, Value> = rest
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    object.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(object)
}

/// Sets or removes `metadata.managedFields`.
fn set_managers(object: &mut Value, managers: Option<Value>) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    if managers.is_some() {
        object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    match managers {
        Some(managers) => metadata.insert("managedFields".to_owned(), managers),
        None => metadata.remove("managedFields"),
    };
}
