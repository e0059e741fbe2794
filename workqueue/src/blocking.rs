//! Waiting without a runtime: a thread that parks until it is woken.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// Parks its thread until its waker is used. One for each thread.
pub(crate) struct Parker {
    shared: Arc<Unpark>,
    waker: Waker,
}

struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

// === impl Parker ===

impl Parker {
    /// Runs `wait` with the parker of this thread.
    pub(crate) fn with<R>(wait: impl FnOnce(&Self) -> R) -> R {
        thread_local! {
            static PARKER: OnceCell<Parker> = const { OnceCell::new() };
        }
        PARKER.with(|parker| wait(parker.get_or_init(Self::new)))
    }

    fn new() -> Self {
        let shared = Arc::new(Unpark {
            thread: thread::current(),
            woken: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&shared));
        Self { shared, waker }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns when the waker was woken since the last call, after `at_most`, or sooner.
    pub(crate) fn park(&self, at_most: Option<Duration>) {
        if self.shared.woken.swap(false, Ordering::Acquire) {
            return;
        }
        match at_most {
            None => thread::park(),
            Some(at_most) => thread::park_timeout(at_most),
        }
        self.shared.woken.store(false, Ordering::Relaxed);
    }
}
