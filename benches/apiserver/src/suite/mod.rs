//! The suites: each measures one server, and returns its values.

pub(crate) mod lists;
pub(crate) mod many;
pub(crate) mod ready;
pub(crate) mod snapshots;
pub(crate) mod watches;
pub(crate) mod writes;

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Result;
use crate::process::Usage;
use crate::server::Server;

/// A span of time, and the processor time that the server used in it.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    server: &'a Server,
    start: Instant,
    before: Usage,
}

// === impl Span ===

impl<'a> Span<'a> {
    pub(crate) fn start(server: &'a Server) -> Result<Self> {
        Ok(Self {
            server,
            before: server.usage()?,
            start: Instant::now(),
        })
    }

    /// The time, and the processor time, so far.
    pub(crate) fn end(&self) -> Result<(Duration, Duration)> {
        let time = self.start.elapsed();
        Ok((
            time,
            self.server.usage()?.cpu.saturating_sub(self.before.cpu),
        ))
    }
}
