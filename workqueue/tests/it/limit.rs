//! A time limit for tests that wait for threads: a test that hangs fails, with its name.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Runs `test` in a thread of its own, which is left behind if it does not end within a minute.
pub fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let (running, ended) = channel::<()>();
    let thread = thread::Builder::new().name(name.clone());
    let thread = thread.spawn(move || {
        // Dropped at the end, also after a panic.
        let _running = running;
        test();
    });
    let end = ended.recv_timeout(Duration::from_secs(60));
    assert_eq!(
        end,
        Err(RecvTimeoutError::Disconnected),
        "{name} hangs: it did not end within a minute"
    );
    if let Err(panic) = thread.unwrap().join() {
        resume_unwind(panic);
    }
}
