//! jemalloc, with the feature of its name.

#[cfg(not(feature = "jemalloc"))]
pub(crate) use std::alloc::System as Jemalloc;

#[cfg(feature = "jemalloc")]
pub(crate) use built::{Jemalloc, keep_arenas};

/// Without it glibc's allocator is the only one.
pub(crate) const IS_BUILT: bool = cfg!(feature = "jemalloc");

#[cfg(not(feature = "jemalloc"))]
pub(crate) fn keep_arenas() {}

#[cfg(feature = "jemalloc")]
mod built {
    use std::ffi::c_char;
    use std::sync::{Arc, Barrier};
    use std::thread;

    use tikv_jemalloc_ctl::{arenas, raw};
    pub(crate) use tikv_jemallocator::Jemalloc;

    /// jemalloc's default number of arenas and time of decay. What this workspace builds for the operator's image has one arena and
    /// half a second.
    #[unsafe(export_name = "_rjem_malloc_conf")]
    static JEMALLOC_CONF: Option<&'static c_char> = {
        // SAFETY: the text is static and not empty.
        Some(unsafe { &*c"narenas:default,dirty_decay_ms:10000".as_ptr() })
    };

    /// jemalloc keeps freed memory for ten seconds, but without background threads it gives all memory of an arena back
    /// when the arena's last thread ends. So each arena gets a thread that does nothing, until the process ends.
    pub(crate) fn keep_arenas() {
        let arenas = arenas::narenas::read().expect("a number of arenas");
        let bound = Arc::new(Barrier::new(arenas as usize + 1));
        for arena in 0..arenas {
            let bound = Arc::clone(&bound);
            thread::spawn(move || {
                // SAFETY: the name ends with a zero, and its value is a C `unsigned`.
                let result = unsafe { raw::write(b"thread.arena\0", arena) };
                bound.wait();
                result.expect("an arena below their number");
                loop {
                    thread::park();
                }
            });
        }
        bound.wait();
    }
}
