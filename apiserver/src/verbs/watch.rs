//! WATCH: events read from the store's ring by a cursor, framed one JSON object a line, or in protobuf with their length.
//!
//! Nothing is queued for a watcher: its stream reads the ring when the socket has room, so no
//! event can be dropped on the way, and memory does not grow with slow readers. One that is so slow
//! that the ring no longer holds its place is closed, and resumes (or gets 410). It wakes for the events of its namespace
//! or object alone.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::conversion;
use super::frames::{self, Form, Frames};
use super::list::options_invalid;
use super::present::Presenter;
use super::read::{resource_version, wait_for};
use super::selection::Selection;
use crate::core::Core;
use crate::field::{FieldError, Path};
use crate::http::media::Encoding;
use crate::request::Request;
use crate::status::Status;
use crate::store::{Change, Event, HistoryError, Object};

/// The longest time of a watch, whatever `timeoutSeconds` is.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Time between bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// The time from the last bookmark to the end of the stream.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Minimum duration of a stream without `timeoutSeconds`; up to as much is added at random.
const SHORTEST_DEFAULT: Duration = Duration::from_secs(1800);
/// Maximum number of events framed at once.
const BATCH: usize = 256;

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One open watch.
pub(crate) struct Watch {
    core: Arc<Core>,
    storage: String,
    /// All objects (empty), those of a namespace (`namespace/`), or one.
    scope: String,
    selection: Selection,
    presenter: Presenter,
    encoding: Encoding,
    follow: watch::Receiver<u64>,
    closing: watch::Receiver<u64>,
    /// Ends when what the definition of the kind serves changes. (apiextensions-apiserver: `tearDown`.)
    definition: watch::Receiver<()>,
    initial: std::vec::IntoIter<Arc<Object>>,
    /// The version of the bookmark that ends the initial events, if it is still to be sent.
    end_of_initial: Option<u64>,
    /// All events up to this version were read.
    cursor: u64,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    /// Sent in place of all events.
    error: Option<Status>,
    started: bool,
    columns_said: bool,
    /// There may be further events that were not read yet.
    more: bool,
    ended: bool,
}

/// The start of a watch.
struct Start {
    cursor: u64,
    initial: Vec<Arc<Object>>,
    end_of_initial: Option<u64>,
}

/// Opens a watch.
///
/// # Errors
/// 400 and 422 for its options; 500 for a malformed version, as a real server answers it.
pub(crate) async fn watch(core: &Arc<Core>, request: &Request) -> Result<Watch, Status> {
    check(core, request)?;
    // Followed before what is served is looked at once more: what changes from here on ends the watch.
    let definition = core.registry.follow(&request.info.storage);
    let info = &request.info;
    let now = core.registry.find(&info.group, &info.version, &info.plural);
    let request = &Request {
        info: now.ok_or_else(Status::no_such_resource)?,
        ..request.clone()
    };
    let query = &request.query;
    let selection = Selection::of(&request.info, query, &request.name)?;
    let storage = request.info.storage.clone();
    let prefix = request.prefix();
    let scope = scope(request, &selection);
    let bookmarks = query.flag("allowWatchBookmarks");
    let version = resource_version(query.get("resourceVersion"))
        .map_err(|status| Status::internal_text(status.message.clone()))?;
    let send_initial = query.optional_flag("sendInitialEvents");
    let mut error = None;
    if let (Some(true), Some(version)) = (send_initial, version) {
        error = wait_for(core, version).await.err();
    }
    let follow = core
        .store
        .follow(&storage, &scope)
        .ok_or_else(Status::no_such_resource)?;
    let start = match (send_initial, version) {
        (Some(true), _) | (None, None | Some(0)) => {
            let (at, objects) = core.store.list(&storage, &prefix);
            Start {
                cursor: at,
                initial: objects
                    .into_iter()
                    .filter(|object| selection.may_match(object))
                    .collect(),
                // Servers with streaming lists end the legacy kind of start with this bookmark, too.
                end_of_initial: (bookmarks && core.streaming_lists()).then_some(at),
            }
        }
        (_, version) => {
            let cursor = version
                .filter(|&version| version > 0)
                .unwrap_or_else(|| core.store.revision());
            if let Err(HistoryError::TooOld { asked, oldest }) =
                core.store.check_start(&storage, cursor)
            {
                error = Some(too_old(asked, oldest));
            }
            Start {
                cursor,
                initial: Vec::new(),
                end_of_initial: None,
            }
        }
    };
    let now = Instant::now();
    let lasts = match query
        .number("timeoutSeconds")?
        .filter(|&seconds| seconds > 0)
    {
        Some(seconds) => Duration::from_secs(seconds.unsigned_abs()),
        None => core.clock.random().jitter(SHORTEST_DEFAULT, 1.0),
    };
    let deadline = now + lasts.min(LONGEST);
    let mut watch = Watch {
        core: core.clone(),
        storage,
        scope,
        selection,
        presenter: Presenter::new(
            &request.info,
            request.accepted.shape,
            request.include_object()?,
            request.now,
        ),
        encoding: request.accepted.encoding,
        follow,
        closing: core.closing.subscribe(),
        definition,
        initial: start.initial.into_iter(),
        end_of_initial: start.end_of_initial,
        cursor: start.cursor,
        bookmarks,
        next_bookmark: deadline,
        deadline,
        error,
        started: false,
        columns_said: false,
        more: false,
        ended: false,
    };
    watch.plan_bookmark(now);
    Ok(watch)
}

/// The narrowest scope that holds all events of a watch.
fn scope(request: &Request, selection: &Selection) -> String {
    let prefix = request.prefix();
    match selection.required_name() {
        Some(name) if !prefix.is_empty() || !request.info.namespaced => format!("{prefix}{name}"),
        _ => prefix,
    }
}

/// The rules for the options of a watch. (apimachinery: `validateWatchOptions`.)
fn check(core: &Core, request: &Request) -> Result<(), Status> {
    const NOT_OLDER_THAN: &str = "NotOlderThan";
    let query = &request.query;
    let how = query.get("resourceVersionMatch");
    let path = Path::new("resourceVersionMatch");
    let mut errors = Vec::new();
    let send_initial = query.has("sendInitialEvents");
    if send_initial {
        if how != Some(NOT_OLDER_THAN) {
            errors.push(FieldError::forbidden(
                &path,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !core.streaming_lists() {
            errors.push(FieldError::forbidden(
                &Path::new("sendInitialEvents"),
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            ));
        }
    }
    if let Some(how) = how {
        if !send_initial {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if how != NOT_OLDER_THAN {
            errors.push(FieldError::not_supported(&path, how, &[NOT_OLDER_THAN]));
        }
        if query.get("continue").is_some() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
    options_invalid(&errors)
}

// === impl Watch ===

impl Watch {
    /// The frames of the watch, several to a piece where several are ready.
    pub(crate) fn frames(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        futures::stream::unfold(self, |mut watch| async move {
            let frames = watch.next().await?;
            Some((Ok(frames), watch))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended {
                return None;
            }
            self.follow.borrow_and_update();
            let (mut closing, deadline) = (self.closing.clone(), self.deadline);
            let mut definition = self.definition.clone();
            // A webhook may take long to convert what is ready. The watch ends meanwhile where it would end without.
            let frames = tokio::select! {
                biased;
                frames = self.ready() => Some(frames),
                _ = closing.changed() => None,
                _ = definition.changed() => None,
                () = sleep_until(deadline) => None,
            };
            let Some(frames) = frames else {
                self.ended = true;
                return None;
            };
            if !frames.is_empty() {
                return Some(frames);
            }
            if self.ended {
                return None;
            }
            if self.more {
                tokio::task::yield_now().await;
                continue;
            }
            let wake = self.next_bookmark.min(self.deadline);
            tokio::select! {
                biased;
                _ = self.closing.changed() => self.ended = true,
                changed = self.follow.changed() => if changed.is_err() {
                    self.ended = true;
                },
                _ = self.definition.changed() => self.ended = true,
                () = sleep_until(wake) => {}
            }
        }
    }

    /// The frames that can be sent now; ends the watch when its time is over.
    async fn ready(&mut self) -> Bytes {
        let mut out = Frames::default();
        if self.closing.has_changed().unwrap_or(true) || self.definition.has_changed().is_err() {
            self.ended = true;
            return out.finish();
        }
        if let Some(status) = self.error.take() {
            self.fail(&status, &mut out);
            return out.finish();
        }
        while self.initial.len() > 0 && out.is_empty() && !self.ended {
            let initial = self.initial.by_ref().take(BATCH).collect();
            match self.selectable(initial).await {
                Ok(initial) => {
                    let matching = initial
                        .into_iter()
                        .filter(|object| self.selection.matches(object));
                    let frames = matching.map(|object| ("ADDED", object)).collect();
                    self.deliver(frames, false, &mut out).await;
                }
                Err(status) => self.fail(&status, &mut out),
            }
        }
        if !out.is_empty() {
            return out.finish();
        }
        if let Some(version) = self.end_of_initial.take() {
            self.bookmark(version, Some(INITIAL_EVENTS_END), &mut out);
            self.started = true;
            return out.finish();
        }
        let now = Instant::now();
        if now >= self.deadline {
            self.ended = true;
            return out.finish();
        }
        match self
            .core
            .store
            .events_in(&self.storage, &self.scope, self.cursor, BATCH)
        {
            Ok((events, seen)) => {
                self.cursor = seen;
                self.more = events.len() == BATCH;
                let events = match self.in_version(events).await {
                    Ok(events) => events,
                    Err(status) => {
                        self.fail(&status, &mut out);
                        return out.finish();
                    }
                };
                let frames = events.into_iter().filter_map(|event| self.of_event(event));
                let frames: Vec<_> = frames.collect();
                if self.more && frames.is_empty() {
                    // None of these was for this watch.
                    return out.finish();
                }
                self.deliver(frames, true, &mut out).await;
            }
            Err(HistoryError::TooOld { asked, oldest }) => {
                if !self.started {
                    self.fail(&too_old(asked, oldest), &mut out);
                }
                self.ended = true;
            }
            Err(HistoryError::TooNew { .. } | HistoryError::NoTable) => self.ended = true,
        }
        self.started = true;
        if now >= self.next_bookmark && out.is_empty() && !self.ended {
            if self.core.faults.sends_bookmarks() {
                self.bookmark(self.cursor, None, &mut out);
            }
            self.plan_bookmark(now);
        }
        out.finish()
    }

    /// A bookmark is sent each minute, and one shortly before the end.
    fn plan_bookmark(&mut self, now: Instant) {
        if !self.bookmarks {
            self.next_bookmark = self.deadline;
            return;
        }
        let last = self
            .deadline
            .checked_sub(BOOKMARK_BEFORE_END)
            .unwrap_or(self.deadline);
        self.next_bookmark = if now >= last {
            self.deadline
        } else {
            (now + BOOKMARK_INTERVAL).min(last)
        };
    }

    /// The frame of an event for this watch, if it has one: objects enter and leave a selection.
    fn of_event(&self, event: Event) -> Option<(&'static str, Arc<Object>)> {
        let before = event
            .previous
            .filter(|previous| self.selection.matches(previous));
        let after = event.change != Change::Deleted && self.selection.matches(&event.object);
        match (before, after) {
            (None, false) => None,
            (None, true) => Some(("ADDED", event.object)),
            (Some(_), true) => Some(("MODIFIED", event.object)),
            (Some(_), false) if event.change == Change::Deleted => Some(("DELETED", event.object)),
            // It left the selection: the last visible state, at the version of leaving.
            (Some(previous), false) => Some(("DELETED", frames::left(&previous, &event.object))),
        }
    }

    /// The events of this watch with their objects in the version of the request, if its selection depends on that.
    async fn in_version(&self, mut events: Vec<Event>) -> Result<Vec<Event>, Status> {
        if !self.selection.is_of_version() {
            return Ok(events);
        }
        let objects = events.iter().flat_map(|event| {
            let previous = event.previous.iter().cloned();
            std::iter::once(event.object.clone()).chain(previous)
        });
        let objects = self.shown(objects.collect(), true).await?;
        let mut objects = objects.into_iter();
        for event in &mut events {
            for object in std::iter::once(&mut event.object).chain(&mut event.previous) {
                if let Some(shown) = objects.next() {
                    *object = shown;
                }
            }
        }
        Ok(events)
    }

    /// Objects in the version of the request, if the selection of this watch depends on that.
    async fn selectable(&self, objects: Vec<Arc<Object>>) -> Result<Vec<Arc<Object>>, Status> {
        if self.selection.is_of_version() {
            return self.shown(objects, false).await;
        }
        Ok(objects)
    }

    /// Objects in the version of the request; those of events are converted once for all watches.
    async fn shown(
        &self,
        objects: Vec<Arc<Object>>,
        of_events: bool,
    ) -> Result<Vec<Arc<Object>>, Status> {
        let (network, info) = (self.core.network(), self.presenter.shared_info());
        match of_events {
            true => conversion::shown_once(network, info, objects).await,
            false => conversion::shown(network, info, objects).await,
        }
    }

    /// Writes frames of [selectable](Self::selectable) objects, in the version of the request.
    async fn deliver(
        &mut self,
        frames: Vec<(&'static str, Arc<Object>)>,
        of_events: bool,
        out: &mut Frames,
    ) {
        let (kinds, objects): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
        let objects = match self.selection.is_of_version() {
            true => Ok(objects),
            false => self.shown(objects, of_events).await,
        };
        let objects = match objects {
            Ok(objects) => objects,
            Err(status) => return self.fail(&status, out),
        };
        let now = self.core.clock.now();
        if of_events {
            // The ages in the row of an event are those of its time.
            self.presenter.set_time(now);
        }
        for (kind, object) in kinds.into_iter().zip(objects) {
            let form = Form {
                kind,
                encoding: self.encoding,
                columns: !self.columns_said,
                second: now.as_second(),
                ..self.presenter.form()
            };
            let frame = match of_events {
                true => frames::shared(&self.presenter, &form, &object),
                false => frames::of_object(&self.presenter, &form, &object),
            };
            match frame {
                Ok(frame) => out.push(frame),
                Err(status) => return self.fail(&status, out),
            }
            self.columns_said = true;
        }
    }

    fn bookmark(&mut self, version: u64, annotation: Option<&str>, out: &mut Frames) {
        let object = self.presenter.bookmark(version, annotation);
        if let Err(status) = out.push_document("BOOKMARK", &object, self.encoding) {
            self.fail(&status, out);
        }
    }

    /// Writes the frame of an error, the last one of its stream.
    fn fail(&mut self, status: &Status, out: &mut Frames) {
        self.ended = true;
        if let Err(error) = out.push_document("ERROR", &status.to_value(), self.encoding) {
            tracing::error!(
                error = error.message,
                "could not write the error of a watch"
            );
        }
    }
}

fn too_old(asked: u64, oldest: u64) -> Status {
    Status::expired(format!("too old resource version: {asked} ({oldest})"))
}
