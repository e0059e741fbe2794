//! DELETE of one object and of many: preconditions, finalizers, propagation, grace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::Written;
use super::list;
use super::pipeline::{Commit, Done, Draft, Write, options, write};
use super::present::ListMeta;
use crate::admission::Operation;
use crate::core::Core;
use crate::field::{FieldError, Path, quote};
use crate::http::media;
use crate::http::query::Parameters;
use crate::json_text;
use crate::meta;
use crate::protobuf;
use crate::request::Request;
use crate::resource::ResourceInfo;
use crate::status::{GroupResource, Status, success};
use crate::store::{Key, Object};

/// Delete options: grace, propagation and preconditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    /// The older field says that dependents are deleted.
    pub(crate) cascades: bool,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
}

/// What happens to the dependents of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They stay, without the reference.
    Orphan,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

// === impl Options ===

impl Options {
    /// Reads the options from the body or, if that is empty, from the query.
    ///
    /// # Errors
    /// 400 for a malformed body, 415 for a body of another type, 422 for invalid values.
    pub(crate) fn read(
        query: &Parameters,
        content_type: Option<&str>,
        body: &Bytes,
    ) -> Result<Self, Status> {
        let from_body = !body.iter().all(u8::is_ascii_whitespace);
        let options: Value = if from_body {
            match media::essence(content_type.unwrap_or_default()).as_str() {
                "" | "application/json" => json_text::parse(body)
                    .map_err(|error| {
                        Status::bad_request(format!(
                            "couldn't get version/kind; json parse error: {error}"
                        ))
                    })?
                    .to_value(),
                "application/yaml" => crate::yaml::read(body).map_err(Status::bad_request)?,
                media::PROTOBUF => protobuf::decode(body, ("v1", "DeleteOptions"))
                    .map_err(|error| Status::bad_request(error.to_string()))?,
                _ => return Err(Status::unsupported_media_type(media::READ)),
            }
        } else {
            let mut options = json!({});
            if let Some(seconds) = query.number("gracePeriodSeconds")? {
                options["gracePeriodSeconds"] = json!(seconds);
            }
            if let Some(policy) = query.get("propagationPolicy") {
                options["propagationPolicy"] = json!(policy);
            }
            if let Some(orphan) = query.optional_flag("orphanDependents") {
                options["orphanDependents"] = json!(orphan);
            }
            options
        };
        // A body says all: the query does not count beside it.
        let dry_run = if from_body {
            Vec::new()
        } else {
            query.all("dryRun")
        };
        Self::parse(&options, &dry_run)
    }

    /// Reads the options of an eviction.
    ///
    /// # Errors
    /// 422 for invalid values.
    pub(crate) fn from_value(options: &Value) -> Result<Self, Status> {
        Self::parse(options, &[])
    }

    fn parse(options: &Value, dry_run_of_query: &[&str]) -> Result<Self, Status> {
        check_type(options)?;
        let mut errors = Vec::new();
        let both =
            options["propagationPolicy"].is_string() && options["orphanDependents"].is_boolean();
        if both {
            errors.push(FieldError::invalid(
                &Path::new("propagationPolicy"),
                options["propagationPolicy"].clone(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match options["propagationPolicy"].as_str() {
            None | Some("") => match options["orphanDependents"].as_bool() {
                Some(true) => Some(Propagation::Orphan),
                Some(false) => Some(Propagation::Background),
                None => None,
            },
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                errors.push(FieldError::not_supported(
                    &Path::new("propagationPolicy"),
                    other,
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        let mut dry_run: Vec<&str> = options["dryRun"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        dry_run.extend(dry_run_of_query);
        if dry_run.iter().any(|&value| value != "All") {
            errors.push(FieldError::not_supported(
                &Path::new("dryRun"),
                json!(dry_run),
                &["All"],
            ));
        }
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        let text = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
        Ok(Self {
            grace_period_seconds: options["gracePeriodSeconds"].as_i64(),
            propagation,
            cascades: options["orphanDependents"] == false,
            uid: text("uid"),
            version: text("resourceVersion"),
            dry_run: !dry_run.is_empty(),
        })
    }

    /// Adds the options to a document of theirs.
    fn show(&self, document: &mut Value) {
        if let Some(seconds) = self.grace_period_seconds {
            document["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(propagation) = self.propagation {
            document["propagationPolicy"] = json!(match propagation {
                Propagation::Orphan => "Orphan",
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
            });
        }
        if let Some(uid) = &self.uid {
            document["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = &self.version {
            document["preconditions"]["resourceVersion"] = json!(version);
        }
    }
}

/// The type of the body, if it has one, must be DeleteOptions.
fn check_type(options: &Value) -> Result<(), Status> {
    let kind = options["kind"].as_str().unwrap_or("DeleteOptions");
    let version = options["apiVersion"].as_str().unwrap_or("v1");
    if kind == "DeleteOptions" {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quote(kind),
        quote(version)
    )))
}

/// Deletes an object: marks it as terminating, or removes it.
pub(crate) struct Removal<'a> {
    options: &'a Options,
    is_admitted: bool,
    /// It is marked, and goes at once.
    is_over: AtomicBool,
    /// The key of one object of a collection, which the request does not name.
    of_collection: Option<Key>,
}

/// What a deletion makes of an object.
enum Mark {
    /// It goes at once, as it is.
    None,
    /// It stays in this state.
    Kept(Value),
    /// This is stored, and then it goes.
    Over(Value),
}

// === impl Removal ===

impl<'a> Removal<'a> {
    fn new(options: &'a Options, is_admitted: bool, of_collection: Option<Key>) -> Self {
        Self {
            options,
            is_admitted,
            is_over: AtomicBool::new(false),
            of_collection,
        }
    }
}

impl Write for Removal<'_> {
    fn load(&self, core: &Core, request: &Request) -> Result<Draft, Status> {
        let info = &request.info;
        let key = self.of_collection.clone();
        let key = key.unwrap_or_else(|| request.key());
        let live = core.store.get(&info.storage, key.as_str());
        let live = live.ok_or_else(|| request.not_found())?;
        Ok(Draft {
            live: Some(live),
            ..Draft::default()
        })
    }

    /// Admission sees the request for the collection, without a name. (apiserver: `DeleteCollection`.)
    fn narrowed(&self, request: &Request, _: &Draft) -> Option<Request> {
        let key = self.of_collection.as_ref()?;
        Some(Request {
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            ..request.clone()
        })
    }

    fn mutate(&self, request: &Request, draft: &mut Draft) -> Result<(), Status> {
        let Some(live) = &draft.live else {
            return Ok(());
        };
        check_preconditions(request, live, self.options)?;
        let mark = mark(request, live, self.options);
        self.is_over
            .store(matches!(mark, Mark::Over(_)), Ordering::Relaxed);
        draft.new = match mark {
            Mark::None => None,
            Mark::Kept(marked) | Mark::Over(marked) => Some(marked),
        };
        Ok(())
    }

    fn operation(&self, _: &Draft) -> Option<Operation> {
        self.is_admitted.then_some(Operation::Delete)
    }

    fn options(&self, request: &Request, operation: Operation) -> Value {
        let mut options = options::of(request, operation);
        self.options.show(&mut options);
        options
    }

    /// The mark is the same in all versions, so it is set in the stored form.
    fn form(&self, request: &Request, draft: &Draft) -> String {
        let live = draft.live.as_deref().map_or("", Object::api_version);
        match live {
            // Nothing but tests stores a built-in kind without it.
            "" if !request.info.custom => request.info.stored_in.clone(),
            live => live.to_owned(),
        }
    }

    fn settle(&self, _: &Request, draft: &mut Draft) -> Commit {
        match (draft.new.take(), &draft.live) {
            (None, _) => Commit::Remove,
            // Watches see the mark, and then the end.
            (Some(marked), _) if self.is_over.load(Ordering::Relaxed) => {
                Commit::PutAndRemove(marked)
            }
            (Some(marked), None) => Commit::Put(marked),
            (Some(marked), Some(live)) => Commit::change(live, marked),
        }
    }

    fn answer(&self, request: &Request, _: Draft, done: Done) -> Written {
        match done {
            Done::Stored(object) => {
                let waits = self.options.cascades && !self.is_over.load(Ordering::Relaxed);
                Written::object(if waits { 202 } else { 200 }, object)
            }
            Done::Removed(object) => gone(request, &object),
        }
    }
}

/// Deletes the named object.
///
/// # Errors
/// 404; 403 for an object that may not be deleted; 409 for a precondition that does not hold.
pub(crate) async fn delete(
    core: &Core,
    request: &Request,
    options: &Options,
) -> Result<Written, Status> {
    warn_of_orphans(request, options);
    remove(core, &as_options(request, options), options, true).await
}

/// Deletes the named object; admission is not asked for what it has admitted in another form.
///
/// # Errors
/// As [`delete`].
pub(crate) async fn remove(
    core: &Core,
    request: &Request,
    options: &Options,
    is_admitted: bool,
) -> Result<Written, Status> {
    let removal = Removal::new(options, is_admitted, None);
    perform(core, request, &removal).await
}

async fn perform(core: &Core, request: &Request, removal: &Removal<'_>) -> Result<Written, Status> {
    let options = removal.options;
    if options.dry_run && !request.dry_run {
        let tried = Request {
            dry_run: true,
            ..request.clone()
        };
        return write(core, &tried, removal).await;
    }
    write(core, request, removal).await
}

/// The request with what its options say of a dry run: they may be in its body.
fn as_options(request: &Request, options: &Options) -> Request {
    Request {
        dry_run: options.dry_run,
        ..request.clone()
    }
}

fn warn_of_orphans(request: &Request, options: &Options) {
    if let Some(warning) = request.info.strategy.warning_of_deletion()
        && options.propagation.is_none()
    {
        request.warnings.add(warning);
    }
}

/// What the deletion makes of an object. (apiserver: `BeforeDelete`, `updateForGracefulDeletionAndFinalizers`.)
fn mark(request: &Request, current: &Object, options: &Options) -> Mark {
    let info = &request.info;
    let mut marked = current.to_value();
    let graceful = info.strategy.ends_gracefully();
    let left = marked["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let shorter = match left.filter(|&left| graceful && current.is_terminating() && left > 0) {
        Some(left) => {
            let asked = options.grace_period_seconds;
            let asked = asked.map(|asked| if asked < 0 { 1 } else { asked });
            match asked.filter(|&asked| asked < left) {
                Some(asked) => Some((left, asked)),
                // The deletion that is pending does not change.
                None => return Mark::Kept(marked),
            }
        }
        None => None,
    };
    let mut finalizers = finalizers_for(info, current, options.propagation);
    if let Some(own) = info.strategy.finalizer_on_deletion()
        && !current.is_terminating()
        && !finalizers.iter().any(|finalizer| finalizer == own)
    {
        finalizers.push(own.to_owned());
    }
    let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    meta::set_strings(&mut marked, "finalizers", &finalizers);
    let grace = info
        .strategy
        .grace_period(&marked, options.grace_period_seconds);
    let terminating = current.is_terminating();
    let stays = !finalizers.is_empty() || !info.strategy.may_go(&marked);
    if let Some((left, asked)) = shorter {
        let mut asked = asked;
        let begun = meta::deletion_time(&marked).unwrap_or(request.now);
        let earlier = jiff::SignedDuration::from_secs(left - asked);
        let due = begun.checked_sub(earlier).unwrap_or(request.now);
        if due < request.now {
            asked = asked.min(1);
        }
        set_due(&mut marked, due.max(request.now), asked);
        return if stays || asked > 0 {
            Mark::Kept(marked)
        } else {
            Mark::Over(marked)
        };
    }
    let waits = stays || grace > 0;
    if !waits && (terminating || !graceful) {
        return Mark::None;
    }
    if !terminating && info.strategy.mark_deleted(&mut marked, request.now) {
        return Mark::Kept(marked);
    }
    if !terminating {
        let generation = meta::generation(&marked);
        let due = request
            .now
            .checked_add(jiff::SignedDuration::from_secs(grace))
            .unwrap_or(request.now);
        set_due(&mut marked, due, grace);
        if generation > 0 {
            let metadata = meta::metadata_mut(&mut marked);
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
    }
    if waits {
        Mark::Kept(marked)
    } else {
        Mark::Over(marked)
    }
}

fn set_due(marked: &mut Value, due: jiff::Timestamp, grace: i64) {
    let metadata = meta::metadata_mut(marked);
    metadata.insert("deletionTimestamp".to_owned(), meta::time(due).into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
}

/// An explicit propagation overrides existing finalizers of the collector, and those override the
/// default of the kind.
fn finalizers_for(
    info: &ResourceInfo,
    current: &Object,
    propagation: Option<Propagation>,
) -> Vec<String> {
    let by_default = info.orphans_by_default && !current.has_collector_finalizer();
    let propagation = propagation.or(by_default.then_some(Propagation::Orphan));
    let mut finalizers: Vec<String> = current
        .finalizers()
        .filter(|&finalizer| {
            propagation.is_none() || (finalizer != ORPHAN && finalizer != FOREGROUND)
        })
        .map(str::to_owned)
        .collect();
    match propagation {
        Some(Propagation::Orphan) => finalizers.push(ORPHAN.to_owned()),
        Some(Propagation::Foreground) => finalizers.push(FOREGROUND.to_owned()),
        Some(Propagation::Background) | None => {}
    }
    finalizers
}

fn check_preconditions(
    request: &Request,
    current: &Object,
    options: &Options,
) -> Result<(), Status> {
    // The real server names the kind here, where the resource is expected.
    let kind = GroupResource {
        group: &request.info.group,
        resource: &request.info.kind,
    };
    let stored = current.uid().unwrap_or_default();
    if let Some(uid) = options.uid.as_deref().filter(|&uid| uid != stored) {
        return Err(Status::conflict(
            kind,
            &request.name,
            format_args!(
                "the UID in the precondition ({uid}) does not match the UID in record ({stored}). The object might have been deleted and then recreated"
            ),
        ));
    }
    let stored = current.version().to_string();
    if let Some(version) = options
        .version
        .as_deref()
        .filter(|&version| version != stored)
    {
        return Err(Status::conflict(
            kind,
            &request.name,
            format_args!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({stored}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

fn gone(request: &Request, removed: &Arc<Object>) -> Written {
    if request.info.delete_returns_object {
        return Written::object(200, removed.clone());
    }
    let uid = removed.uid().unwrap_or_default();
    Written::document(200, success(request.resource(), &request.name, uid))
}

/// Deletes every object that a list of the same query would return; returns that list. Each object is admitted by itself.
///
/// # Errors
/// Those of the list; that of the first object that is not deleted, unless it is gone meanwhile; 504 after the time of the
/// request, with the objects that are deleted until then.
pub(crate) async fn delete_collection(
    core: &Core,
    request: &Request,
    options: &Options,
) -> Result<(Vec<Arc<Object>>, ListMeta), Status> {
    warn_of_orphans(request, options);
    let request = &as_options(request, options);
    let (objects, meta) = list::list(core, request).await?;
    let mut deleted = Vec::with_capacity(objects.len());
    for object in objects {
        // Other requests run between two objects, and the time of this one may end.
        yield_now().await;
        let removal = Removal::new(options, true, Some(object.key().clone()));
        match perform(core, request, &removal).await {
            // The answer shows the object as it was listed.
            Ok(_) => deleted.push(object),
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    Ok((deleted, meta))
}
