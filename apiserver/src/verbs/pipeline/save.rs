//! Creations and changes.

use serde_json::Value;

use super::draft::{Commit, Draft, Part};
use super::run::{Done, Write};
use super::{creation, update};
use crate::admission::Operation;
use crate::apply::take_managers;
use crate::core::Core;
use crate::escalation;
use crate::kinds::{Claim, rules};
use crate::meta;
use crate::ownership::{self, Conversions, Writer};
use crate::request::Request;
use crate::status::Status;
use crate::store::Object;
use crate::verbs::present::whole;
use crate::verbs::{Written, metadata, prepare};

/// How often a name is generated until it is free. (apiserver: `maxNameGenerationCreateAttempts`.)
const GENERATED_NAME_TRIES: usize = 8;

/// Makes the new object from the present one, which is `None` for a creation. It runs again after a race.
pub(crate) type Change<'a> = &'a (dyn Fn(Option<&Value>) -> Result<Changed, Status> + Sync);
/// Makes the new object from the present one and its admitted part.
pub(crate) type Whole<'a> = &'a (dyn Fn(&Value, Value) -> Result<Value, Status> + Sync);

/// A new object, before the rules of its kind.
pub(crate) enum Changed {
    /// What differs belongs to the manager of the request.
    Object(Value),
    /// Its managedFields name the owners of its fields.
    Owned(Value),
    /// As `Owned`, and only its owners differ.
    Owners(Value),
    /// A part that admission sees instead of the object; [`Save::whole`] makes the object of it.
    Part(Part),
}

/// What must be stored under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// No object.
    Absent,
    /// An object.
    Present,
    /// Either: it is created or changed.
    Any,
}

/// Creates an object, or changes one.
pub(crate) struct Save<'a> {
    target: Target,
    change: Change<'a>,
    whole: Option<Whole<'a>>,
    /// Follows the ownership of fields, through all tries.
    writer: &'a Writer<'a>,
    asks_admission: bool,
}

// === impl Save ===

impl<'a> Save<'a> {
    pub(crate) fn new(writer: &'a Writer<'a>, target: Target, change: Change<'a>) -> Self {
        Self {
            target,
            change,
            whole: None,
            writer,
            asks_admission: true,
        }
    }

    /// A write to a [`Part`], which `whole` makes the object of.
    pub(crate) fn of_part(self, whole: Whole<'a>) -> Self {
        Self {
            whole: Some(whole),
            ..self
        }
    }

    /// A write that follows from one that was admitted.
    pub(crate) fn admitted(self) -> Self {
        Self {
            asks_admission: false,
            ..self
        }
    }

    /// The managedFields of `new`, which loses those that it has. `old` stays the same.
    fn managers(
        &self,
        request: &Request,
        mut old: Option<&mut Value>,
        new: &mut Value,
    ) -> Option<Value> {
        let info = &request.info;
        let mut encoded = info.strategy.encoded(info, new);
        let sent = take_managers(new).unwrap_or_default();
        if let Some(encoded) = &mut encoded {
            take_managers(encoded);
        }
        let of_old = old.as_deref_mut().and_then(take_managers);
        let live = old
            .as_deref()
            .map(|old| (old, of_old.as_ref().unwrap_or(&Value::Null)));
        let managers = self
            .writer
            .update_apart(live, encoded.as_ref().unwrap_or(new), &sent);
        if let (Some(old), Some(of_old)) = (old, of_old) {
            meta::metadata_mut(old).insert("managedFields".to_owned(), of_old);
        }
        managers
    }
}

impl Write for Save<'_> {
    fn load(&self, core: &Core, request: &Request) -> Result<Draft, Status> {
        let info = &request.info;
        if self.target == Target::Absent {
            return Ok(Draft::default());
        }
        let live = core.store.get(&info.storage, request.key().as_str());
        if live.is_none() && self.target != Target::Any {
            return Err(request.not_found());
        }
        Ok(Draft {
            tree: live.as_ref().map(|live| live.value()),
            live,
            ..Draft::default()
        })
    }

    /// Also through its status, an object is created as a whole; and a part is one of the whole.
    fn narrowed(&self, request: &Request, draft: &Draft) -> Option<Request> {
        let is_whole = draft.live.is_none() || self.whole.is_some();
        (is_whole && !request.subresource.is_empty()).then(|| Request {
            subresource: String::new(),
            ..request.clone()
        })
    }

    fn mutate(&self, request: &Request, draft: &mut Draft) -> Result<(), Status> {
        draft.old = draft
            .shown
            .as_ref()
            .map(|shown| whole(&request.info, shown));
        let changed = (self.change)(draft.old.as_ref())?;
        if let (Some(live), Changed::Owned(new) | Changed::Owners(new) | Changed::Object(new)) =
            (&draft.live, &changed)
        {
            update::check_uid(request, live, new)?;
        }
        draft.keeps = matches!(changed, Changed::Owners(_));
        // As decoding does on a real server, defaults are set before ownership and admission see the object.
        let new = match changed {
            Changed::Owned(new) | Changed::Owners(new) => {
                let (mut decoded, shared) = ownership::as_decoded(request, new);
                ownership::leave_shared(shared, &mut decoded);
                decoded
            }
            Changed::Part(part) => {
                draft.part = Some(part);
                return Ok(());
            }
            Changed::Object(mut new) => {
                if let Some(schema) = request.info.structural() {
                    schema.default(&mut new);
                }
                if draft.old.is_none() {
                    metadata::drop_system_fields(&mut new);
                }
                let (mut decoded, shared) = ownership::as_decoded(request, new);
                let managers = self.managers(request, draft.old.as_mut(), &mut decoded);
                meta::set_managers(&mut decoded, managers);
                ownership::leave_shared(shared, &mut decoded);
                decoded
            }
        };
        draft.new = Some(new);
        Ok(())
    }

    fn conversions(&self) -> Option<&Conversions> {
        self.writer.conversions()
    }

    fn operation(&self, draft: &Draft) -> Option<Operation> {
        let operation = match draft.live {
            None => Operation::Create,
            Some(_) => Operation::Update,
        };
        self.asks_admission.then_some(operation)
    }

    fn default(&self, core: &Core, request: &Request, draft: &mut Draft) -> Result<(), Status> {
        if let (Some(part), Some(whole)) = (&mut draft.part, self.whole) {
            let old = draft.old.as_ref().unwrap_or(&Value::Null);
            let new = whole(old, part.new.clone())?;
            if let Some(live) = &draft.live {
                update::check_uid(request, live, &new)?;
            }
            draft.new = Some(new);
        }
        let new = draft.new.get_or_insert_default();
        // Admission may have changed it.
        metadata::settle_namespace(request, new)?;
        metadata::drop_equal_owners(request, new, " after mutating admission happens");
        let managers = meta::metadata_mut(new).remove("managedFields");
        match (&draft.live, &draft.old) {
            (Some(live), Some(old)) => update::restore(request, live, old, new)?,
            _ => creation::fill(core, request, draft)?,
        }
        let new = draft.new.get_or_insert_default();
        meta::set_managers(new, managers);
        request
            .warnings
            .extend(metadata::warnings(&request.info, new));
        match &draft.old {
            Some(old) => rules::before_update(request, old, new),
            None => rules::before_create(request, new),
        }
        prepare::default(request, new);
        Ok(())
    }

    fn claim(
        &self,
        core: &Core,
        request: &Request,
        draft: &mut Draft,
    ) -> Result<Option<Claim>, Status> {
        let new = draft.new.get_or_insert_default();
        rules::allocate(core, request, draft.old.as_ref(), new)
    }

    fn validate(&self, core: &Core, request: &Request, draft: &mut Draft) -> Result<(), Status> {
        let old = draft.old.as_ref();
        let new = draft.new.get_or_insert_default();
        if let Some(old) = old {
            update::raise_generation(request, old, new);
        }
        prepare::validate(request, new, old)?;
        escalation::check(core, request, new, old)
    }

    fn check_storable(&self, request: &Request, draft: &Draft) -> Result<(), Status> {
        match (&draft.live, &draft.new) {
            (None, Some(new)) => creation::check_version(request, new),
            _ => Ok(()),
        }
    }

    fn settle(&self, request: &Request, draft: &mut Draft) -> Commit {
        let mut new = draft.new.take().unwrap_or_default();
        let Some(live) = &draft.live else {
            return Commit::Put(new);
        };
        update::keep_other_part(request, live, &mut new);
        let map = meta::object_mut(&mut new);
        map.remove("kind");
        let api_version = map.remove("apiVersion").unwrap_or_default();
        let tree = draft.tree.get_or_insert_with(|| live.value());
        ownership::keep_times(tree, &mut new);
        meta::object_mut(&mut new).insert("apiVersion".to_owned(), api_version);
        if update::ends(request, live, &new) {
            draft.new = Some(new);
            return Commit::Remove;
        }
        Commit::change(live, new)
    }

    fn raced(
        &self,
        core: &Core,
        request: &Request,
        draft: &Draft,
        tries: usize,
    ) -> Result<(), Status> {
        let is_named = !draft.generated || tries >= GENERATED_NAME_TRIES;
        match &draft.key {
            Some(key) if self.target == Target::Absent && is_named => {
                Err(creation::exists(core, request, key))
            }
            _ => Ok(()),
        }
    }

    fn answer(&self, _: &Request, draft: Draft, done: Done) -> Written {
        let code = if draft.live.is_some() { 200 } else { 201 };
        match (done, draft.new, draft.live) {
            // The last state was never stored without its finalizer; the answer shows it without, at its old version.
            (Done::Removed(_), Some(new), Some(live)) => {
                Written::object(code, Object::new(new, live.version()).into())
            }
            (Done::Removed(object) | Done::Stored(object), ..) => Written::object(code, object),
        }
    }
}
