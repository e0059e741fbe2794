//! Following changes, from one watch to the next.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::options::MINIMUM_WATCH_TIMEOUT;
use super::react::{Reaction, SHORT, react};
use super::{Error, Progress, Reflector};
use crate::decode::{Budget, Frame, Undecodable, decode_frame};
use crate::fifo::{Deletion, Delta};
use crate::health::Activity;
use crate::metrics::Measurement;
use crate::object::Stored;
use reeve_client::ResourceVersion;
use reeve_client::transport::{self, Lines, WatchRequest};

/// How many bookmarks in a row may be older than what is known.
const LOW_BOOKMARKS: u32 = 3;

/// How many watches in a row may end within a second, each after some events, until that is slowed down.
const BRIEF_WATCHES: u32 = 3;

/// How much earlier than asked a watch may end and still count as ended in time.
const EARLY: Duration = Duration::from_secs(5);

/// A watch that the server agreed to.
pub(super) struct Opened {
    pub(super) lines: Lines,
    /// When the server was asked to end it.
    until: Instant,
    /// It was opened without a version, so it begins with everything there is.
    from_nothing: bool,
}

/// One watch, from open to end.
struct Session {
    started: Instant,
    /// When the server was asked to end it.
    until: Instant,
    /// Changes that were news.
    events: u64,
    /// What is added may have been there before, and comes in any order (a watch without a version), until anything
    /// else than an addition comes.
    synthetic: bool,
}

/// How a watch ended.
enum End {
    /// The server closed it.
    Closed,
    /// It was silent, and this one took over.
    Replaced(Opened),
    Failed(Error),
}

/// What one line did.
enum Step {
    Next,
    Failed(Error),
}

impl<S: Stored> Reflector<S> {
    /// Follows changes until everything has to be read again, and says what failed, if anything did.
    pub(super) async fn follow(
        &self,
        progress: &mut Progress,
        opened: Option<Opened>,
    ) -> Option<Error> {
        let mut opened = opened;
        let mut brief = 0;
        loop {
            let Opened {
                lines,
                until,
                from_nothing,
            } = match opened.take() {
                Some(opened) => opened,
                None => match self.open_next(progress).await {
                    Ok(opened) => opened,
                    Err(error) => {
                        self.recorder.record(Measurement::WatchFailed);
                        match self.recover(progress, error.into(), false).await {
                            Ok(()) => continue,
                            Err(error) => return Some(error),
                        }
                    }
                },
            };
            self.health.enter(Activity::Watching);
            let mut session = Session {
                started: Instant::now(),
                until,
                events: 0,
                synthetic: from_nothing,
            };
            let end = self.consume(progress, lines, &mut session).await;
            // The rest of what was there may not have come. Another such watch would not say what is gone since.
            let again = session.synthetic;
            if again {
                progress.version = Some(ResourceVersion::default());
            }
            let lasted = session.started.elapsed();
            let short = lasted < SHORT && session.events == 0;
            self.recorder.record(Measurement::Watched {
                events: session.events,
                duration: lasted,
                short,
            });
            brief = if lasted < SHORT { brief + 1 } else { 0 };
            let worked = !short && brief < BRIEF_WATCHES && !(again && lasted < SHORT);
            match end {
                End::Replaced(second) => opened = Some(second),
                // A connection that carried a watch for a while broke: that is no failure of the server, and
                // says nothing about the next.
                End::Closed | End::Failed(Error::Transport(transport::Error::Connection(_)))
                    if worked =>
                {
                    if Instant::now() + EARLY < session.until {
                        sleep(self.scatter(progress)).await;
                    }
                }
                End::Closed => self.back_off(progress, &Error::Incomplete).await,
                End::Failed(error) => {
                    if let Err(error) = self.recover(progress, error, true).await {
                        return Some(error);
                    }
                }
            }
            if again {
                return None;
            }
        }
    }

    /// Waits before the next watch, or says that it would be of no use.
    async fn recover(
        &self,
        progress: &mut Progress,
        error: Error,
        in_stream: bool,
    ) -> Result<(), Error> {
        progress.failures += 1;
        let reaction = match &error {
            Error::Transport(error) => react(error, in_stream, progress.failures),
            _ => Reaction::Relist,
        };
        if reaction == Reaction::Relist {
            return Err(error);
        }
        self.back_off(progress, &error).await;
        Ok(())
    }

    /// Opens a watch after the last version, when one more request is due.
    async fn open_next(&self, progress: &mut Progress) -> Result<Opened, transport::Error> {
        progress.pace.ready().await;
        self.open(&progress.version.clone().unwrap_or_default(), false)
            .await
    }

    /// Opens a watch after `version`, or a streaming list not older than it.
    pub(super) async fn open(
        &self,
        version: &ResourceVersion,
        initial: bool,
    ) -> Result<Opened, transport::Error> {
        let shortest = self.options.watch_timeout.max(MINIMUM_WATCH_TIMEOUT);
        let request = WatchRequest {
            resource_version: version.to_string(),
            send_initial_events: initial,
            timeout: self.clock.random().jitter(shortest, 1.0),
        };
        let until = Instant::now() + request.timeout;
        let lines = self
            .transport
            .watch(request.build(&self.endpoint, &self.selection)?)
            .await?;
        Ok(Opened {
            lines,
            until,
            from_nothing: version.is_empty() && !initial,
        })
    }

    async fn consume(
        &self,
        progress: &mut Progress,
        mut lines: Lines,
        session: &mut Session,
    ) -> End {
        let mut proven = false;
        let mut frames = 0;
        let mut budget = Budget::new();
        // A server that falls silent does so to everyone.
        let idle = self.options.watch_idle + self.spread();
        loop {
            // Most lines come many at once; only the first of them is waited for.
            let line = if let Some(line) = lines.ready_line().transpose() {
                line.map(Some)
            } else if proven {
                lines.next_line(idle).await
            } else {
                match lines.next_line(SHORT.min(idle)).await {
                    Err(transport::Error::Silent { .. }) if SHORT < idle => {
                        // Open and quiet: what failed before is over.
                        proven = true;
                        progress.scattered = false;
                        self.recovered();
                        continue;
                    }
                    line => line,
                }
            };
            if let Ok(Some(line)) = &line {
                budget.spend(line.len()).await;
            }
            if frames != lines.frames() {
                frames = lines.frames();
                self.health.heard();
            }
            match self.step(progress, line, session) {
                Ok(Some(Step::Next)) => {}
                Ok(Some(Step::Failed(error))) => return End::Failed(error),
                Ok(None) => return End::Closed,
                Err(transport::Error::Silent { after }) => {
                    self.recorder.record(Measurement::WatchStalled);
                    progress.silences += 1;
                    if session.synthetic {
                        // There is no version to open a second one at.
                        return End::Closed;
                    }
                    if progress.is_too_silent()
                        && let Err(error) = self.probe(progress).await
                    {
                        return End::Failed(error);
                    }
                    match self.replace(progress, &mut lines, after, session).await {
                        Some(end) => return end,
                        None => continue,
                    }
                }
                Err(error) => return End::Failed(error.into()),
            }
            if progress.is_too_old()
                && let Err(error) = self.probe(progress).await
            {
                return End::Failed(error);
            }
            self.room().await;
        }
    }

    /// A server that was restored from a backup says nothing to a watch whose version it has not reached, not
    /// even bookmarks; another may say what is old, and never a bookmark. So then it is asked where it stands.
    async fn probe(&self, progress: &mut Progress) -> Result<(), Error> {
        let Some(known) = &progress.version else {
            return Ok(());
        };
        // It is one in minutes, and so not waited for.
        let _ = progress.pace.take();
        match self.newest_version().await {
            Ok(got) if got.is_older_than(known) => Err(Error::Behind {
                known: known.clone(),
                got,
            }),
            // That it does not answer is found out by the next watch.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A silent watch may be dead, or its server have nothing to say: a second one is opened at the last
    /// version before the first is dropped, so that no moment goes unwatched.
    async fn replace(
        &self,
        progress: &mut Progress,
        lines: &mut Lines,
        silent: Duration,
        session: &mut Session,
    ) -> Option<End> {
        let version = progress.version.clone().unwrap_or_default();
        // It is one in many seconds, and so not waited for.
        let _ = progress.pace.take();
        let opening = self.open(&version, false);
        tokio::pin!(opening);
        loop {
            tokio::select! {
                biased;
                line = lines.next_line(silent) => match self.step(progress, line, session) {
                    // It speaks after all.
                    Ok(Some(Step::Next)) => return None,
                    Ok(Some(Step::Failed(error))) => return Some(End::Failed(error)),
                    Ok(None) => return Some(End::Closed),
                    Err(transport::Error::Silent { .. }) => {}
                    Err(error) => return Some(End::Failed(error.into())),
                },
                opened = &mut opening => return Some(match opened {
                    Ok(second) => End::Replaced(second),
                    Err(error) => End::Failed(error.into()),
                }),
            }
        }
    }

    /// Takes one line. `Ok(None)` is the end of the stream.
    fn step(
        &self,
        progress: &mut Progress,
        line: Result<Option<bytes::Bytes>, transport::Error>,
        session: &mut Session,
    ) -> Result<Option<Step>, transport::Error> {
        let Some(line) = line? else {
            return Ok(None);
        };
        progress.silences = 0;
        let frame = decode_frame::<S>(&line, &self.decoding)?;
        Ok(Some(self.take(progress, frame, session)))
    }

    fn take(&self, progress: &mut Progress, frame: Frame<S>, session: &mut Session) -> Step {
        if matches!(
            frame,
            Frame::Modified(_) | Frame::Deleted(_) | Frame::Bookmark { .. }
        ) {
            session.synthetic = false;
        }
        match frame {
            Frame::Added(object) | Frame::Modified(object)
                if !session.synthetic && progress.is_old(object.resource_version()) =>
            {
                // The server was asked for what comes after the version known: this was seen, or undone.
                tracing::debug!(kind = %self.endpoint, namespace = self.namespace(), object = %object.key_ref(), version = object.resource_version(), "dropped an old event");
                progress.old_events = progress.old_events.saturating_add(1);
                self.health.stale();
                self.recorder.record(Measurement::StaleEvent);
            }
            Frame::Added(object) => self.push(progress, object, session, false, Delta::Added),
            Frame::Modified(object) => self.push(progress, object, session, false, Delta::Updated),
            // The store knows whether an old deletion still means something: some servers send the object's
            // last version and not the deletion's.
            Frame::Deleted(object) => {
                self.push(progress, object, session, true, |object| {
                    Delta::Deleted(Deletion::Seen(object))
                });
            }
            Frame::Undecodable { object, deleted } => {
                self.set_aside(progress, object, deleted, session);
            }
            Frame::Bookmark {
                resource_version, ..
            } => {
                let version = ResourceVersion::from(resource_version);
                if let Some(known) = progress
                    .version
                    .clone()
                    .filter(|known| version.is_older_than(known))
                {
                    progress.low_bookmarks += 1;
                    if progress.low_bookmarks >= LOW_BOOKMARKS {
                        return Step::Failed(Error::LowBookmarks { known });
                    }
                } else {
                    progress.low_bookmarks = 0;
                    progress.old_events = 0;
                    progress.version = Some(version.clone());
                    self.fifo.bookmark(version);
                    self.proceed(progress);
                }
            }
            Frame::Error(status) => {
                return Step::Failed(transport::Error::from_status(status).into());
            }
            Frame::Unknown => {}
        }
        Step::Next
    }

    fn push(
        &self,
        progress: &mut Progress,
        object: Arc<S>,
        session: &mut Session,
        deleted: bool,
        delta: impl FnOnce(Arc<S>) -> Delta<S>,
    ) {
        match self.prepare(object) {
            Ok(object) => {
                let version = object.resource_version();
                // The store knows whether it has what was there before.
                let before = session.synthetic && progress.is_old(version);
                session.events += u64::from(before || progress.advance(version));
                self.health.release(object.key_ref());
                self.fifo.push(delta(object));
                self.proceed(progress);
            }
            Err(object) => self.set_aside(progress, object, deleted, session),
        }
    }

    /// Quarantines what cannot be read; of what is deleted no more is needed than that.
    fn set_aside(
        &self,
        progress: &mut Progress,
        object: Undecodable,
        deleted: bool,
        session: &mut Session,
    ) {
        self.report(&object);
        let version = object.resource_version.clone().unwrap_or_default();
        let advanced = progress.advance(&version);
        session.events += u64::from(advanced);
        if deleted {
            if let Some(key) = object.key {
                // An object in quarantine may have another uid than the former one of its name, which the store holds.
                let quarantined = self.health.release(key.as_ref());
                let uid = object.uid.filter(|_| !quarantined);
                // The store knows whether it still means something, as with one that can be read.
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
            // All that can be known of this version is.
            self.fifo.bookmark(version.into());
        }
        self.proceed(progress);
    }

    /// The watch works.
    fn proceed(&self, progress: &mut Progress) {
        progress.failures = 0;
        progress.scattered = false;
        self.recovered();
    }
}
