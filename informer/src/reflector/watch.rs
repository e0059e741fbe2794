//! One watch, from its request to its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::chunk::Decode;
use super::error::Error;
use super::frames::Frames;
use super::history::History;
use super::opened::Opened;
use super::pace::Pace;
use super::phase::{End, Ended};
use super::react::SHORT;
use super::run::Reflector;
use super::waits::Waits;
use crate::decode::{DecodeError, Frame, Undecodable, decode_frame};
use crate::fifo::{Deletion, Delta};
use crate::metrics::Measurement;
use crate::object::Stored;
use reeve_client::transport::{self, Encoding, WatchRequest};
use reeve_client::{KeyRef, ObjectKey, ResourceVersion};

/// The course of one watch so far.
#[derive(Debug, Default)]
struct Session {
    /// The number of changes that were newer than the known version.
    events: u64,
    /// Something usable came.
    useful: bool,
    /// It was open and quiet for a second.
    proven: bool,
    /// Additions may be of objects that were there before, in any order: a watch without a version, before anything but
    /// an addition came.
    synthetic: bool,
}

impl<S: Stored + ?Sized> Reflector<S> {
    /// Opens a watch after `version`.
    pub(super) async fn watch(
        &self,
        version: &ResourceVersion,
    ) -> Result<Opened<S>, transport::Error> {
        self.open(version, false, self.decoder()).await
    }

    /// Opens a watch after `version`, or a streaming list not older than it. `decode` reads its lines.
    pub(super) async fn open(
        &self,
        version: &ResourceVersion,
        initial: bool,
        decode: Arc<Decode<S>>,
    ) -> Result<Opened<S>, transport::Error> {
        let request = WatchRequest {
            resource_version: version.to_string(),
            send_initial_events: initial,
            timeout: self.clock.random().jitter(self.options.watch_timeout, 1.0),
        };
        let until = Instant::now() + request.timeout;
        let lines = self.lines(&request).await?;
        Ok(Opened {
            frames: Frames::new(lines, decode),
            until,
            from_nothing: version.is_empty() && !initial,
        })
    }

    /// Reads the lines of a watch.
    pub(super) fn decoder(&self) -> Arc<Decode<S>> {
        let entries = self.entries.clone();
        Arc::new(move |encoding, event| decode_frame(encoding, event, &entries))
    }

    /// Follows a watch to its end.
    pub(super) async fn follow(
        &self,
        watch: Opened<S>,
        history: &mut History,
        waits: &mut Waits,
    ) -> Ended<Opened<S>> {
        let started = Instant::now();
        let mut session = Session {
            synthetic: watch.from_nothing,
            ..Session::default()
        };
        let end = self.consume(watch.frames, history, waits, &mut session);
        let end = end.await;
        if session.useful || session.proven {
            waits.worked();
        }
        let ended = Ended {
            end,
            until: watch.until,
            lasted: started.elapsed(),
            events: session.events,
            useful: session.useful,
            synthetic: session.synthetic,
        };
        self.recorder.record(Measurement::Watched {
            events: ended.events,
            duration: ended.lasted,
            short: ended.is_short(),
        });
        ended
    }

    async fn consume(
        &self,
        mut frames: Frames<S>,
        history: &mut History,
        waits: &mut Waits,
        session: &mut Session,
    ) -> End<Opened<S>> {
        let (mut received, mut queued) = (0, false);
        // A server that falls silent does so for all of its watches.
        let idle = self.options.watch_idle + waits.random_spread();
        loop {
            // Most lines arrive together, and only the first of them is waited for.
            let frame = frames.ready().await;
            if let Some(handover) = &self.handover
                && frame.is_none()
                && std::mem::take(&mut queued)
                && frames.waited()
            {
                handover.pause().await;
            }
            let waited = if frame.is_some() {
                Ok(true)
            } else if session.proven {
                frames.wait(idle).await
            } else {
                match frames.wait(SHORT.min(idle)).await {
                    Err(transport::Error::Silent { .. }) if SHORT < idle => {
                        // Open and quiet: the former failure is over.
                        session.proven = true;
                        self.report_success();
                        continue;
                    }
                    waited => waited,
                }
            };
            if received != frames.received() {
                received = frames.received();
                self.health.heard();
            }
            match waited {
                Ok(true) => {
                    let Some(frame) = frame else {
                        continue;
                    };
                    if let Err(error) = self.step(history, frame, session) {
                        let encoding = frames.encoding();
                        return self.unreadable(history, encoding, error, session).await;
                    }
                    queued = true;
                }
                Ok(false) => return End::Closed,
                Err(transport::Error::Silent { after }) => {
                    self.recorder.record(Measurement::WatchStalled);
                    let probe = history.was_silent();
                    if session.synthetic {
                        // There is no version at which a second one could be opened.
                        return End::Closed;
                    }
                    if probe && let Err(error) = self.probe(history, &mut waits.pace).await {
                        return End::Failed(error);
                    }
                    let pace = &mut waits.pace;
                    match self
                        .replace(history, pace, &mut frames, after, session)
                        .await
                    {
                        Some(end) => return end,
                        None => continue,
                    }
                }
                Err(error) => {
                    let encoding = frames.encoding();
                    let end = self.unreadable(history, encoding, error.into(), session);
                    return end.await;
                }
            }
            if history.needs_probe()
                && let Err(error) = self.probe(history, &mut waits.pace).await
            {
                return End::Failed(error);
            }
            self.room().await;
        }
    }

    /// The end of a watch after an error. A watch whose encoding cannot be read is followed by one in JSON, from the last
    /// version.
    async fn unreadable(
        &self,
        history: &History,
        encoding: Encoding,
        error: Error,
        session: &Session,
    ) -> End<Opened<S>> {
        let is_over = match &error {
            Error::Transport(error) => !self.fall_back_after(encoding, error),
            _ => true,
        };
        if is_over {
            return End::Failed(error);
        }
        if session.synthetic {
            // There is no version at which a second one could be opened.
            return End::Closed;
        }
        match self.watch(&history.version()).await {
            Ok(second) => End::Replaced(second),
            Err(error) => End::Failed(error.into()),
        }
    }

    /// Asks the server for its newest version; an error if it is older than the known one.
    async fn probe(&self, history: &History, pace: &mut Pace) -> Result<(), Error> {
        // Probes are minutes apart, so this takes a request without waiting.
        let _ = pace.take();
        match self.newest_version().await {
            Ok(newest) => history.check_newest(newest),
            // The next watch reveals a server that does not answer.
            Err(_) => Ok(()),
        }
    }

    /// Replaces a silent watch: its connection may be dead, or nothing may have happened. A second watch is opened at the
    /// last version before the first is dropped, so that no moment is unwatched. `None` if the first one continues.
    async fn replace(
        &self,
        history: &mut History,
        pace: &mut Pace,
        frames: &mut Frames<S>,
        silent: Duration,
        session: &mut Session,
    ) -> Option<End<Opened<S>>> {
        let version = history.version();
        // A line that comes before the request is due makes it needless, and then it is not taken.
        let opening = async {
            pace.due().await;
            pace.ready().await;
            self.watch(&version).await
        };
        tokio::pin!(opening);
        loop {
            tokio::select! {
                biased;
                frame = frames.next(silent) => match frame {
                    Ok(Some(frame)) => {
                        let error = self.step(history, frame, session).err()?;
                        let encoding = frames.encoding();
                        return Some(self.unreadable(history, encoding, error, session).await);
                    }
                    Ok(None) => return Some(End::Closed),
                    Err(transport::Error::Silent { .. }) => {}
                    Err(error) => {
                        let encoding = frames.encoding();
                        let end = self.unreadable(history, encoding, error.into(), session);
                        return Some(end.await);
                    }
                },
                opened = &mut opening => return Some(match opened {
                    Ok(second) => End::Replaced(second),
                    Err(error) => End::Failed(error.into()),
                }),
            }
        }
    }

    /// Takes one line.
    fn step(
        &self,
        history: &mut History,
        frame: Result<Frame<S>, DecodeError>,
        session: &mut Session,
    ) -> Result<(), Error> {
        history.heard();
        let frame = frame.map_err(transport::Error::from)?;
        self.take(history, frame, session)
    }

    fn take(
        &self,
        history: &mut History,
        frame: Frame<S>,
        session: &mut Session,
    ) -> Result<(), Error> {
        if matches!(
            frame,
            Frame::Modified(_) | Frame::Deleted(_) | Frame::Bookmark { .. }
        ) {
            session.synthetic = false;
        }
        match frame {
            Frame::Added(object) | Frame::Modified(object)
                if !session.synthetic && history.is_old(object.resource_version()) =>
            {
                self.drop_old(history, Some(object.key_ref()), object.resource_version());
            }
            Frame::Undecodable {
                object,
                deleted: false,
            } if !session.synthetic && history.is_old(object.version()) => {
                let key = object.key.as_ref().map(ObjectKey::as_ref);
                self.drop_old(history, key, object.version());
            }
            Frame::Added(object) => self.push(history, object, session, false, Delta::Added),
            Frame::Modified(object) => self.push(history, object, session, false, Delta::Updated),
            // The store decides whether an old deletion still counts: some servers send the object's last version in
            // place of the deletion's.
            Frame::Deleted(object) => {
                self.push(history, object, session, true, |object| {
                    Delta::Deleted(Deletion::Seen(object))
                });
            }
            Frame::Undecodable { object, deleted } => {
                self.set_aside(history, object, deleted, session);
            }
            Frame::Bookmark {
                resource_version, ..
            } => {
                let version = ResourceVersion::from(resource_version);
                if !version.is_empty() && history.bookmark(&version)? {
                    self.fifo.bookmark(version);
                    self.proceed(session);
                }
            }
            Frame::Error(status) => {
                return Err(transport::Error::from_status(status).into());
            }
            Frame::Unknown => {}
        }
        Ok(())
    }

    /// Drops a change that is not newer than the known version, after which the watch began: it was seen, or undone.
    fn drop_old(&self, history: &mut History, key: Option<KeyRef<'_>>, version: &str) {
        let object = key.map(tracing::field::display);
        tracing::debug!(kind = %self.endpoint, namespace = self.namespace(), object, version, "dropped an old event");
        history.count_old_event();
        self.health.stale();
        self.recorder.record(Measurement::StaleEvent);
    }

    /// Queues a change.
    fn push(
        &self,
        history: &mut History,
        object: Arc<S>,
        session: &mut Session,
        deleted: bool,
        delta: impl FnOnce(Arc<S>) -> Delta<S>,
    ) {
        match self.prepare(object) {
            Ok(object) => {
                let version = object.resource_version();
                // The store decides whether it has an object that was there before.
                let before = session.synthetic && history.is_old(version);
                session.events += u64::from(before || history.advance(version));
                let quarantined = self.health.release(object.key_ref());
                // The store may hold a former object of this name, which this deletion would not be about.
                let is_former = deleted && quarantined && {
                    let held = self.known.as_ref();
                    let held = held.and_then(|known| known.known(object.key_ref()));
                    held.is_none_or(|held| held.uid() != object.uid())
                };
                self.fifo.push(if is_former {
                    Delta::Deleted(Deletion::Unreadable {
                        key: object.key(),
                        uid: String::new(),
                        resource_version: object.resource_version().to_owned(),
                    })
                } else {
                    delta(object)
                });
                self.proceed(session);
            }
            Err(object) => self.set_aside(history, object, deleted, session),
        }
    }

    /// Quarantines an object that cannot be read. Of a deleted one, the deletion is queued.
    fn set_aside(
        &self,
        history: &mut History,
        object: Undecodable,
        deleted: bool,
        session: &mut Session,
    ) {
        self.report_undecodable(&object);
        let version = object.resource_version.clone().unwrap_or_default();
        let advanced = history.advance(&version);
        session.events += u64::from(advanced);
        if deleted {
            if let Some(key) = object.key {
                // An object in quarantine may have another uid than the former one of its name, which the store holds.
                let quarantined = self.health.release(key.as_ref());
                let uid = object.uid.filter(|_| !quarantined);
                // The store decides whether it still counts, as for a deletion that can be read.
                self.fifo.push(Delta::Deleted(Deletion::Unreadable {
                    key,
                    uid: uid.map(String::from).unwrap_or_default(),
                    resource_version: version.clone(),
                }));
            }
        } else {
            self.health.quarantine(&object);
        }
        if advanced {
            // Nothing more can be read of this version.
            self.fifo.bookmark(version.into());
        }
        self.proceed(session);
    }

    /// Records that the watch works.
    fn proceed(&self, session: &mut Session) {
        session.useful = true;
        self.report_success();
    }
}
