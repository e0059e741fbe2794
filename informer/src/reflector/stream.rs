//! The present state as a stream of initial events (client-go: `watchList`).

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::error::Error;
use super::history::History;
use super::initial::Initial;
use super::opened::Opened;
use super::phase::Outcome;
use super::run::{Listed, Reflector};
use crate::decode::{Budget, Frame, changed, decode_frame};
use crate::metrics::Measurement;
use crate::object::Stored;
use reeve_client::error_chain;
use reeve_client::transport::{self, Encoding, Lines};

impl<S: Stored + ?Sized> Reflector<S> {
    /// Reads the present state into the queue. The connection continues as a watch.
    pub(super) async fn stream(&self, history: &mut History) -> Outcome<Opened> {
        let started = Instant::now();
        let version = history.streaming_version();
        let consistent = version.is_none();
        let mut watch = match self.open(&version.unwrap_or_default(), true).await {
            Ok(watch) => watch,
            Err(error) => return self.stream_failed(error.into(), false),
        };
        let deadline = started + self.options.streaming_deadline;
        let listed = self.initial_events(history, &mut watch.lines, deadline);
        let listed = match listed.await {
            Ok(listed) => listed,
            Err(error) => return self.stream_failed(error, true),
        };
        self.recorder.record(Measurement::Listed {
            items: listed.objects.len(),
            duration: started.elapsed(),
            streamed: true,
        });
        let accepted = self.accept(history, listed, consistent);
        Outcome::Streamed { watch, accepted }
    }

    fn stream_failed(&self, error: Error, begun: bool) -> Outcome<Opened> {
        let text = error_chain(&error);
        tracing::debug!(kind = %self.endpoint, namespace = self.namespace(), error = %text, "streaming list failed");
        Outcome::StreamFailed { error, begun }
    }

    /// The state after all initial events, which have to be complete by `deadline`.
    async fn initial_events(
        &self,
        history: &History,
        lines: &mut Lines,
        deadline: Instant,
    ) -> Result<Listed<S>, Error> {
        let mut initial = Initial::new();
        let mut budget = Budget::new();
        let version = loop {
            let line = self.initial_line(lines, deadline).await?;
            budget.spend(line.len()).await;
            let frame = self.initial_frame(history, lines.encoding(), &line)?;
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

    /// The next line.
    async fn initial_line(&self, lines: &mut Lines, deadline: Instant) -> Result<Bytes, Error> {
        // Most lines arrive together.
        if let Some(line) = lines.ready_line()? {
            return Ok(line);
        }
        let line = lines.next_line(self.options.streaming_idle);
        let line = timeout_at(deadline, line).await;
        let line = line.map_err(|_| Error::Endless {
            after: self.options.streaming_deadline,
        })?;
        line?.ok_or(Error::Incomplete)
    }

    /// The content of a line. An object that the consumer holds is not read again.
    fn initial_frame(
        &self,
        history: &History,
        encoding: Encoding,
        line: &[u8],
    ) -> Result<Frame<S>, Error> {
        // At first the consumer holds nothing.
        let changed = history
            .has_begun()
            .then(|| changed(encoding, line))
            .flatten();
        let held = changed.and_then(|identity| self.held(history, &identity));
        let frame = match held {
            Some(object) => Frame::Modified(object),
            None => decode_frame(encoding, line, &self.entries).map_err(transport::Error::from)?,
        };
        let (Frame::Added(object) | Frame::Modified(object)) = frame else {
            return Ok(frame);
        };
        Ok(match self.reuse(history, object) {
            Ok(object) => Frame::Modified(object),
            Err(object) => Frame::Undecodable {
                object,
                deleted: false,
            },
        })
    }
}
