//! The present state as a stream of initial events (client-go: `watchList`).

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::chunk::Decode;
use super::error::Error;
use super::frames::Frames;
use super::history::History;
use super::initial::Initial;
use super::opened::Opened;
use super::phase::Outcome;
use super::run::{Listed, Reflector, held};
use crate::decode::{Frame, changed, decode_frame};
use crate::metrics::Measurement;
use crate::object::Stored;
use reeve_client::error_chain;
use reeve_client::transport;

impl<S: Stored + ?Sized> Reflector<S> {
    /// Reads the present state into the queue. The connection continues as a watch.
    pub(super) async fn stream(&self, history: &mut History) -> Outcome<Opened<S>> {
        let started = Instant::now();
        let version = history.streaming_version();
        let consistent = version.is_none();
        let version = version.unwrap_or_default();
        let deadline = started + self.options.streaming_deadline;
        let (mut watch, listed) = loop {
            let decode = self.initial_decoder(history);
            let mut watch = match self.open(&version, true, decode).await {
                Ok(watch) => watch,
                Err(error) => return self.stream_failed(error.into(), false),
            };
            let listed = self.initial_events(history, &mut watch.frames, deadline);
            match listed.await {
                Ok(listed) => break (watch, listed),
                // Once more, as JSON.
                Err(Error::Transport(error))
                    if self.fall_back_after(watch.frames.encoding(), &error) => {}
                Err(error) => return self.stream_failed(error, true),
            }
        };
        self.recorder.record(Measurement::Listed {
            items: listed.objects.len(),
            duration: started.elapsed(),
            streamed: true,
        });
        let accepted = self.accept(history, listed, consistent);
        watch.frames.read_by(self.decoder());
        Outcome::Streamed { watch, accepted }
    }

    fn stream_failed(&self, error: Error, begun: bool) -> Outcome<Opened<S>> {
        let text = error_chain(&error);
        tracing::debug!(kind = %self.endpoint, namespace = self.namespace(), error = %text, "streaming list failed");
        Outcome::StreamFailed { error, begun }
    }

    /// The state after all initial events, which have to be complete by `deadline`.
    async fn initial_events(
        &self,
        history: &History,
        frames: &mut Frames<S>,
        deadline: Instant,
    ) -> Result<Listed<S>, Error> {
        let mut initial = Initial::new();
        let version = loop {
            let frame = self.initial_frame(frames, deadline).await?;
            let frame = self.reused(history, frame);
            if let Some(version) = initial.take(frame)? {
                break version;
            }
        };
        let (objects, undecodable) = initial.finish();
        Ok(Listed {
            objects,
            undecodable,
            version,
        })
    }

    /// The next frame.
    async fn initial_frame(
        &self,
        frames: &mut Frames<S>,
        deadline: Instant,
    ) -> Result<Frame<S>, Error> {
        loop {
            // Also of a server that sends without an end, for which nothing is waited here.
            if Instant::now() >= deadline {
                return Err(self.endless());
            }
            // Most lines arrive together.
            if let Some(frame) = frames.ready().await {
                return Ok(frame.map_err(transport::Error::from)?);
            }
            let waited = timeout_at(deadline, frames.wait(self.options.streaming_idle)).await;
            let waited = waited.map_err(|_| self.endless())?;
            if !waited? {
                return Err(Error::Incomplete);
            }
        }
    }

    fn endless(&self) -> Error {
        Error::Endless {
            after: self.options.streaming_deadline,
        }
    }

    /// Reads the lines of a streaming list. An object that the consumer holds is not read again.
    fn initial_decoder(&self, history: &History) -> Arc<Decode<S>> {
        // At first the consumer holds nothing.
        let known = history.has_begun().then(|| self.holding(history)).flatten();
        let Some(known) = known else {
            return self.decoder();
        };
        let entries = self.entries.clone();
        Arc::new(move |encoding, line| {
            match changed(encoding, line).and_then(|identity| held(&*known, &identity)) {
                Some(object) => Ok(Frame::Modified(object)),
                None => decode_frame(encoding, line, &entries),
            }
        })
    }

    /// The frame with the entry that the consumer holds of an object that has not changed.
    fn reused(&self, history: &History, frame: Frame<S>) -> Frame<S> {
        let (Frame::Added(object) | Frame::Modified(object)) = frame else {
            return frame;
        };
        match self.reuse(history, object) {
            Ok(object) => Frame::Modified(object),
            Err(object) => Frame::Undecodable {
                object,
                deleted: false,
            },
        }
    }
}
