//! Where whoever finds the queue locked leaves what needs no answer.
//!
//! Whoever waits for a lock that moves from processor to processor makes it move more. Adds, and runs that
//! end with nothing to follow, wait for nothing: their letter is applied by whoever holds the lock.
//!
//! Whoever leaves a letter tries the lock again after, and whoever releases the lock looks for letters
//! again after, each with a fence between the two. So one of them sees the other, and no letter lies
//! there while the queue is unlocked and nobody is about to lock it. Every operation begins with
//! applying the letters: those of one thread in their order, and before what it does next.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::reason::ReasonBits;
use crate::sync::{AtomicBool, Mutex, fence};

/// How many letters there is room for. Whoever finds no room waits for the lock.
const ROOM: usize = if cfg!(shuttle) { 2 } else { 128 };

/// What needs no answer.
#[derive(Debug)]
pub(crate) enum Letter<T> {
    /// An add that waits for no time.
    Add {
        key: T,
        hash: u32,
        priority: i32,
        reasons: ReasonBits,
    },
    /// A run has ended, and nothing follows from it.
    Settle { place: (u32, u32), forget: bool },
}

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    inside: Mutex<Inside<T>>,
    /// There are letters.
    filled: AtomicBool,
}

#[derive(Debug)]
struct Inside<T> {
    letters: VecDeque<Letter<T>>,
    /// Nothing is to be left until it is opened again.
    closed: bool,
}

// === impl Mailbox ===

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            inside: Mutex::new(Inside {
                letters: VecDeque::new(),
                closed: false,
            }),
            filled: AtomicBool::new(false),
        }
    }

    /// Leaves a letter; gives it back if there is no room.
    pub(crate) fn leave(&self, letter: Letter<T>) -> Result<(), Letter<T>> {
        let mut inside = self.inside.lock();
        if inside.closed || inside.letters.len() >= ROOM {
            return Err(letter);
        }
        inside.letters.push_back(letter);
        self.filled.store(true, Relaxed);
        Ok(())
    }

    /// Swaps the letters for an empty box, and leaves the mailbox open or not. To be called by whoever
    /// holds the lock.
    pub(crate) fn empty(&self, letters: &mut VecDeque<Letter<T>>, close: bool) {
        if close || self.filled.load(Relaxed) {
            let mut inside = self.inside.lock();
            std::mem::swap(&mut inside.letters, letters);
            inside.closed = close;
            // One that is closed is to be opened.
            self.filled.store(close, Relaxed);
        }
    }

    /// Whether there may be letters that nobody sees to: to be asked after the lock was released.
    pub(crate) fn has_letters(&self) -> bool {
        fence(SeqCst);
        self.filled.load(Relaxed)
    }
}
