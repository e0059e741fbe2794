//! The steps of a write, in their order.

use std::sync::Arc;

use serde_json::Value;
use tokio::task::yield_now;
use tokio::time::timeout_at;

use super::draft::{Commit, Draft};
use super::options;
use crate::admission::{AdmissionRequest, Operation, Reinvocation};
use crate::core::Core;
use crate::kinds::{Claim, rules};
use crate::ownership::Conversions;
use crate::request::Request;
use crate::status::Status;
use crate::store::{CommitError, Effect, Object};
use crate::verbs::{Content, Written, conversion};

/// What differs between writes. No step waits: each decides from what is stored, and from the steps before it.
pub(crate) trait Write: Sync {
    /// Reads what is written over.
    ///
    /// # Errors
    /// 404, and those of reading the object in this version.
    fn load(&self, core: &Core, request: &Request) -> Result<Draft, Status>;

    /// The request as the rules see it, if that is not the one that admission sees.
    fn narrowed(&self, _request: &Request, _draft: &Draft) -> Option<Request> {
        None
    }

    /// Makes the object that the request asks for, with the owners of its fields.
    ///
    /// # Errors
    /// Those of the verb.
    fn mutate(&self, request: &Request, draft: &mut Draft) -> Result<(), Status>;

    /// The conversions by a webhook that `mutate` lacked. Once they are made it is called again.
    fn conversions(&self) -> Option<&Conversions> {
        None
    }

    /// Whether admission is asked, and about which effect.
    fn operation(&self, draft: &Draft) -> Option<Operation>;

    /// The options of the request, as admission sees them.
    fn options(&self, request: &Request, operation: Operation) -> Value {
        options::of(request, operation)
    }

    /// Sets the fields that the client cannot choose, and defaults.
    ///
    /// # Errors
    /// 409 for a version or uid that is not the stored one; 422 for fields that cannot change.
    fn default(&self, _: &Core, _: &Request, _: &mut Draft) -> Result<(), Status> {
        Ok(())
    }

    /// Allocates what only one object can have, until the claim is dropped.
    ///
    /// # Errors
    /// 422 for a value that another object has; 500 when no value is left.
    fn claim(&self, _: &Core, _: &Request, _: &mut Draft) -> Result<Option<Claim>, Status> {
        Ok(None)
    }

    /// Checks the object about to be stored.
    ///
    /// # Errors
    /// 403 and 422.
    fn validate(&self, _: &Core, _: &Request, _: &mut Draft) -> Result<(), Status> {
        Ok(())
    }

    /// Checks the object after admission, as storage does.
    ///
    /// # Errors
    /// 500.
    fn check_storable(&self, _: &Request, _: &Draft) -> Result<(), Status> {
        Ok(())
    }

    /// The `apiVersion` that the new object has the form of.
    fn form(&self, request: &Request, _: &Draft) -> String {
        request.info.api_version()
    }

    /// What to store, its owners included; the new object has its stored form.
    fn settle(&self, request: &Request, draft: &mut Draft) -> Commit;

    /// Decides after a race, the `tries`-th of this write, whether to begin again.
    ///
    /// # Errors
    /// The answer, if not.
    fn raced(&self, _: &Core, _: &Request, _: &Draft, _tries: usize) -> Result<(), Status> {
        Ok(())
    }

    /// The answer; `done` is the object as stored, or the last state of a removed one.
    fn answer(&self, request: &Request, draft: Draft, done: Done) -> Written;
}

/// The effect of a commit.
#[derive(Debug)]
pub(crate) enum Done {
    /// This object is stored, or would be without a dry run.
    Stored(Arc<Object>),
    /// The object is removed, or would be; its last stored state.
    Removed(Arc<Object>),
}

/// Writes. A race with another write begins again: a client gets a conflict only for a version that it named.
///
/// Nothing is held while admission waits except for claims, and those end with the future.
///
/// # Errors
/// Those of the steps; 504 at the deadline of the request.
pub(crate) async fn write(
    core: &Core,
    request: &Request,
    verb: &impl Write,
) -> Result<Written, Status> {
    let tries = async {
        for tries in 1.. {
            if let Some(written) = attempt(core, request, verb, tries).await? {
                return Ok(written);
            }
            yield_now().await;
        }
        Err(Status::timeout())
    };
    let written = timeout_at(request.deadline, tries).await;
    written.unwrap_or_else(|_| Err(Status::timeout()))
}

/// Asks admission about an object that is not stored: one whose creation writes others, or the options of a connection.
/// `check` sees it between the two questions, with what admission changed.
///
/// # Errors
/// The refusal, and that of `check`; 504 at the deadline of the request.
pub(crate) async fn admit(
    core: &Core,
    request: &Request,
    operation: Operation,
    object: &mut Value,
    check: impl FnOnce(&Value) -> Result<(), Status>,
) -> Result<(), Status> {
    let server = core.of_admission();
    let asking = async {
        let mut asked = AdmissionRequest {
            operation,
            request,
            object: Some(object),
            old: None,
            options: options::of(request, operation),
            reinvocation: Reinvocation::default(),
        };
        core.admission.mutate(&server, &mut asked).await?;
        check(asked.object.as_deref().unwrap_or(&Value::Null))?;
        core.admission.validate(&server, &asked).await
    };
    let answer = timeout_at(request.deadline, asking).await;
    answer.unwrap_or_else(|_| Err(Status::timeout()))
}

/// Goes through the steps once; `None` after a race.
async fn attempt(
    core: &Core,
    request: &Request,
    verb: &impl Write,
    tries: usize,
) -> Result<Option<Written>, Status> {
    let mut draft = verb.load(core, request)?;
    let server = core.of_admission();
    let (whole, asks) = (verb.narrowed(request, &draft), request);
    let request = whole.as_ref().unwrap_or(request);
    let info = &request.info;
    if let Some(live) = &draft.live {
        draft.shown = Some(conversion::shown_one(core.network(), info, live.clone()).await?);
    }
    loop {
        let mutated = verb.mutate(request, &mut draft);
        match verb.conversions() {
            Some(conversions) if conversions.load(core.network()).await => {}
            _ => {
                mutated?;
                break;
            }
        }
    }
    let operation = verb.operation(&draft);
    if let Some(operation) = operation {
        let mut asked = draft.asked(operation, asks, verb.options(asks, operation));
        core.admission.mutate(&server, &mut asked).await?;
    }
    verb.default(core, request, &mut draft)?;
    let claim = verb.claim(core, request, &mut draft)?;
    verb.validate(core, request, &mut draft)?;
    if let Some(operation) = operation {
        let asked = draft.asked(operation, asks, verb.options(asks, operation));
        core.admission.validate(&server, &asked).await?;
    }
    verb.check_storable(request, &draft)?;
    if let Some(stored) = draft.kept(info) {
        draft.new = Some(stored);
    } else if let Some(new) = draft.new.take() {
        let (live, from) = (draft.live.as_deref(), verb.form(request, &draft));
        draft.new = Some(conversion::to_stored(core.network(), info, live, &from, new).await?);
    }
    let change = verb.settle(request, &mut draft);
    let committed = commit(core, request, &draft, change, claim).await;
    match committed {
        Ok(done) => {
            let mut written = verb.answer(request, draft, done);
            if let Content::Object(object) = written.content {
                written.content =
                    Content::Object(conversion::shown_one(core.network(), info, object).await?);
            }
            Ok(Some(written))
        }
        Err(CommitError::Raced) => verb.raced(core, request, &draft, tries).map(|()| None),
        // It was removed meanwhile: admission has the answer.
        Err(CommitError::Namespace) => Ok(None),
        Err(CommitError::NoTable(_)) => Err(Status::no_such_resource()),
        Err(CommitError::TooLarge) => Err(Status::internal_text(CommitError::TooLarge.to_string())),
        Err(error) => Err(Status::internal(error)),
    }
}

/// Stores or removes the object if it is still as it was loaded; a dry run only checks that.
///
/// A request may be dropped while the disk syncs. The claim lasts until the write is stored. A write that has effects outside
/// of the store has no end in between.
async fn commit(
    core: &Core,
    request: &Request,
    draft: &Draft,
    change: Commit,
    claim: Option<Claim>,
) -> Result<Done, CommitError> {
    let info = &request.info;
    let live = draft.live.as_ref();
    let key = draft.key.clone().unwrap_or_else(|| request.key());
    let effect = match (change, live) {
        (Commit::Nothing, Some(live)) => return Ok(Done::Stored(live.clone())),
        (Commit::Put(value), _) => Effect::Put(value),
        (Commit::PutAndRemove(value), _) => Effect::PutAndRemove(value),
        (Commit::Nothing | Commit::Remove, _) => Effect::Remove,
    };
    if request.dry_run {
        return match (effect, live) {
            (Effect::Put(_), None) if core.store.get(&info.storage, key.as_str()).is_some() => {
                Err(CommitError::Raced)
            }
            (Effect::Put(value) | Effect::PutAndRemove(value), _) => {
                Ok(Done::Stored(Arc::new(Object::draft(value))))
            }
            (Effect::Remove, Some(live)) => Ok(Done::Removed(live.clone())),
            (Effect::Remove, None) => Err(CommitError::Raced),
        };
    }
    let removes = !matches!(effect, Effect::Put(_));
    let storage = &info.storage;
    let (store, expected, decision) = (&core.store, draft.expected(), request.decision);
    let stored = if rules::has_effects(info) {
        store.commit_decided(decision, storage, key.as_str(), expected, effect)?
    } else {
        let key = key.as_str();
        let commit = store.commit_unblocked(decision, storage, key, expected, effect, claim);
        commit.await?
    };
    rules::after_write(
        core,
        info,
        live.map(|live| &**live),
        (!removes).then_some(&*stored),
    );
    Ok(if removes {
        Done::Removed(stored)
    } else {
        Done::Stored(stored)
    })
}
