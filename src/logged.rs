//! The log of one thread, for tests.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

/// Keeps what its thread logs, until it is dropped.
pub(crate) struct Logged {
    written: Written,
    _guard: DefaultGuard,
}

/// The lines, as the subscriber writes them.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

// === impl Logged ===

impl Logged {
    /// Keeps lines of `level` and of higher ones.
    pub(crate) fn at(level: Level) -> Self {
        // Otherwise a thread of another test that reaches a line first would disable it for the whole process.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || writer.clone());
        Self {
            written,
            _guard: tracing::subscriber::set_default(subscriber.finish()),
        }
    }

    /// The text since the last call.
    pub(crate) fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.written.0.lock());
        String::from_utf8(bytes).expect("the log is UTF-8")
    }
}

// === impl Written ===

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
