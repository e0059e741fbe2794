//! The body of a watch, line by line.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_client::client::Body;
use tokio::time::timeout;

use super::Error;

/// Splits a body into lines. A line that came in one frame is passed on without a copy.
pub struct Lines {
    body: Body,
    /// What of the newest frame was not handed out.
    frame: Bytes,
    /// The start of a line whose end has not come.
    partial: BytesMut,
    limit: usize,
    /// How many frames came.
    frames: u64,
    ended: bool,
}

// === impl Lines ===

impl Lines {
    pub(super) fn new(body: Body, limit: usize) -> Self {
        Self {
            body,
            frame: Bytes::new(),
            partial: BytesMut::new(),
            limit,
            frames: 0,
            ended: false,
        }
    }

    /// How many times the server was heard.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The next line that is already here.
    fn buffered(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.frame) else {
                return Ok(None);
            };
            // However it was cut into frames.
            if self.partial.len() + end > self.limit {
                return Err(self.too_large());
            }
            let line = self.frame.split_to(end);
            self.frame.advance(1);
            let line = if self.partial.is_empty() {
                line
            } else {
                self.partial.extend_from_slice(&line);
                self.partial.split().freeze()
            };
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(line));
            }
        }
    }

    /// What follows cannot be told from the line that is too long, so it is the end.
    fn too_large(&mut self) -> Error {
        self.frame = Bytes::new();
        self.partial = BytesMut::new();
        self.ended = true;
        Error::TooLarge { limit: self.limit }
    }

    /// The next line, or `None` at the end. A last line without its end is dropped: it may be cut.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Silent`] if nothing at all comes for `idle`, [`Error::Connection`] if the connection breaks,
    /// [`Error::TooLarge`] for a line past the limit.
    pub async fn next_line(&mut self, idle: Duration) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(line) = self.buffered()? {
                return Ok(Some(line));
            }
            if self.partial.len() + self.frame.len() > self.limit {
                return Err(self.too_large());
            }
            if !self.frame.is_empty() {
                self.partial.extend_from_slice(&self.frame);
                self.frame.clear();
            }
            if self.ended {
                return Ok(None);
            }
            match timeout(idle, self.body.frame()).await {
                Err(_) => return Err(Error::Silent { after: idle }),
                Ok(None) => self.ended = true,
                Ok(Some(Err(error))) => {
                    self.ended = true;
                    return Err(Error::Connection(error));
                }
                Ok(Some(Ok(frame))) => {
                    self.frames += 1;
                    if let Ok(data) = frame.into_data() {
                        self.frame = data;
                    }
                }
            }
        }
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("buffered", &(self.frame.len() + self.partial.len()))
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(body: &'static str, limit: usize) -> Result<Vec<String>, Error> {
        let mut lines = Lines::new(Body::from(body.as_bytes().to_vec()), limit);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line(Duration::from_secs(1)).await? {
            found.push(String::from_utf8(line.to_vec()).unwrap());
        }
        Ok(found)
    }

    #[tokio::test]
    async fn empty_lines_are_skipped_and_a_cut_last_line_dropped() {
        assert_eq!(
            lines("{a}\n\n \r\n{b}\n{cut", 100).await.unwrap(),
            ["{a}", "{b}"]
        );
        assert!(lines("", 100).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_line_past_the_limit_is_refused() {
        assert!(matches!(
            lines("0123456789", 5).await,
            Err(Error::TooLarge { limit: 5 })
        ));
    }
}
