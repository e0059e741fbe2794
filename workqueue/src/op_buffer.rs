//! Flat combining: operations without a result are buffered while the lock is held and applied by its holder.
//!
//! Waiting for a lock that moves between processors makes it move more. So adds, and runs that end without
//! a requeue, never wait: if the lock is taken, the operation goes into the buffer.
//!
//! The producer tries the lock again after it buffered an operation, and the holder checks the buffer
//! again after it released the lock, each with a fence between the two steps. So one of them sees the
//! other, and no operation stays buffered while the queue is unlocked. Every operation first applies the
//! buffer: the operations of one thread stay in their order.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::reason::ReasonBits;
use crate::sync::{AtomicBool, Mutex, fence};

/// Capacity of the buffer. A producer that finds it full waits for the lock.
const CAPACITY: usize = if cfg!(shuttle) { 2 } else { 128 };

/// An operation without a result.
#[derive(Debug)]
pub(crate) enum DeferredOp<T> {
    /// An add without a delay.
    Add {
        key: T,
        hash: u32,
        priority: i32,
        reasons: ReasonBits,
    },
    /// The end of a run without a requeue.
    Settle { place: (u32, u32), forget: bool },
}

#[derive(Debug)]
pub(crate) struct OpBuffer<T> {
    inside: Mutex<Inside<T>>,
    /// Whether there are operations, or the buffer is closed.
    filled: AtomicBool,
}

#[derive(Debug)]
struct Inside<T> {
    ops: VecDeque<DeferredOp<T>>,
    /// Refuses operations until it is opened again.
    closed: bool,
}

// === impl OpBuffer ===

impl<T> OpBuffer<T> {
    pub(crate) fn new() -> Self {
        Self {
            inside: Mutex::new(Inside {
                ops: VecDeque::new(),
                closed: false,
            }),
            filled: AtomicBool::new(false),
        }
    }

    /// Buffers an operation; returns it if the buffer is full or closed.
    pub(crate) fn push(&self, op: DeferredOp<T>) -> Result<(), DeferredOp<T>> {
        let mut inside = self.inside.lock();
        if inside.closed || inside.ops.len() >= CAPACITY {
            return Err(op);
        }
        inside.ops.push_back(op);
        self.filled.store(true, Relaxed);
        Ok(())
    }

    /// Swaps the operations for an empty deque, and closes or opens the buffer. Called with the queue locked.
    pub(crate) fn swap(&self, ops: &mut VecDeque<DeferredOp<T>>, close: bool) {
        if close || self.filled.load(Relaxed) {
            let mut inside = self.inside.lock();
            std::mem::swap(&mut inside.ops, ops);
            inside.closed = close;
            // A closed buffer must be opened again.
            self.filled.store(close, Relaxed);
        }
    }

    /// Whether there may be unapplied operations. Called after the lock was released.
    pub(crate) fn has_ops(&self) -> bool {
        fence(SeqCst);
        self.filled.load(Relaxed)
    }
}
