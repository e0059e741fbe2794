//! Waiting calls of `get`: which are notified, and which drives the timers.
//!
//! Waiters are in one list. Two invariants hold whenever the queue is unlocked, so no wake-up is lost:
//!
//! * As many waiters are *notified* (woken, not yet polled) as there are ready items, or no waiter is
//!   left to notify.
//! * If a timer is set and there are waiters, one waiter is the *driver*: it sleeps until that time. If
//!   there is no driver, or it sleeps too long, a waiter has been woken to become it.
//!
//! [`Waiters::wake_waiters`] restores both from any state, so a waiter that leaves, notified or driving,
//! only has to be removed before the call. A woken waiter must be polled or dropped. A driver that is
//! neither delays the timers only until the next operation: an overdue driver is replaced.

use std::task::Waker;

use crate::slab::NONE;

#[derive(Debug, Default)]
struct Waiter {
    /// Taken on wake-up, so that it is woken once.
    waker: Option<Waker>,
    previous: u32,
    next: u32,
    state: WaiterState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WaiterState {
    #[default]
    Vacant,
    /// In the list.
    Waits,
    /// Woken for an item and out of the list.
    Notified,
}

#[derive(Debug)]
pub(crate) struct Waiters {
    waiters: Vec<Waiter>,
    vacant: u32,
    head: u32,
    tail: u32,
    /// Number of waiters in the list.
    waiting: usize,
    notified: usize,
    driver: u32,
    driver_until: u64,
}

/// Index of a waiter, or none yet.
pub(crate) type Ticket = Option<u32>;

/// Wakers to wake when the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

// === impl Wakes ===

impl Wakes {
    pub(crate) fn push(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.rest.push(waker);
        }
    }
}

/// Wakers are woken also if the operation panics.
impl Drop for Wakes {
    fn drop(&mut self) {
        if let Some(first) = self.first.take() {
            first.wake();
        }
        for waker in self.rest.drain(..) {
            waker.wake();
        }
    }
}

// === impl Waiters ===

impl Waiters {
    pub(crate) fn new() -> Self {
        Self {
            waiters: Vec::new(),
            vacant: NONE,
            head: NONE,
            tail: NONE,
            waiting: 0,
            notified: 0,
            driver: NONE,
            driver_until: 0,
        }
    }

    /// Number of waiters in the list that can be woken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The waiter was polled: it is no longer notified.
    pub(crate) fn polled(&mut self, ticket: Ticket) {
        if let Some(index) = ticket
            && self.waiters[index as usize].state == WaiterState::Notified
        {
            self.notified -= 1;
            // It keeps its turn: a notified waiter that finds nothing waits at the front.
            self.link_front(index);
        }
    }

    /// The waiter found nothing and waits on; `next` is the next timer. Returns the time until which it sleeps if it is
    /// the driver, and the waker that `waker` replaces, to be dropped outside the lock.
    pub(crate) fn park(
        &mut self,
        ticket: &mut Ticket,
        waker: &Waker,
        next: Option<u64>,
        now: u64,
    ) -> (Option<u64>, Option<Waker>) {
        let index = match *ticket {
            Some(index) => index,
            None => *ticket.insert(self.enter()),
        };
        let waiter = &mut self.waiters[index as usize];
        let replaced = match &waiter.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => waiter.waker.replace(waker.clone()),
        };
        let overdue = self.driver_until <= now;
        let until = match next {
            Some(at) if self.driver == NONE || self.driver == index || overdue => {
                self.driver = index;
                self.driver_until = at;
                Some(at)
            }
            None if self.driver == index => {
                self.driver = NONE;
                None
            }
            _ => None,
        };
        (until, replaced)
    }

    /// Removes the waiter, with an item or without. [`Waiters::wake_waiters`] must follow.
    /// Returns its waker, to be dropped outside the lock.
    pub(crate) fn leave(&mut self, ticket: &mut Ticket) -> Option<Waker> {
        let index = ticket.take()?;
        match self.waiters[index as usize].state {
            WaiterState::Waits => self.unlink(index),
            WaiterState::Notified => self.notified -= 1,
            WaiterState::Vacant => return None,
        }
        if self.driver == index {
            self.driver = NONE;
        }
        let waiter = &mut self.waiters[index as usize];
        waiter.state = WaiterState::Vacant;
        waiter.next = self.vacant;
        self.vacant = index;
        waiter.waker.take()
    }

    /// Restores the invariants: enough waiters notified for `ready` items, and a driver for `next`.
    pub(crate) fn wake_waiters(&mut self, ready: usize, next: Option<u64>, wakes: &mut Wakes) {
        while self.notified < ready && self.waiting > 0 {
            let index = self.pick();
            self.unlink(index);
            let waiter = &mut self.waiters[index as usize];
            waiter.state = WaiterState::Notified;
            self.notified += 1;
            wakes.push(waiter.waker.take());
        }
        let Some(next) = next else { return };
        if self.driver != NONE {
            if next < self.driver_until {
                wakes.push(self.waiters[self.driver as usize].waker.take());
            }
        } else if self.notified == 0 && self.waiting > 0 {
            // A notified waiter becomes the driver when it is polled; without one, a waiter is woken for that.
            wakes.push(self.waiters[self.head as usize].waker.take());
        }
    }

    /// Wakes all waiters without counting a notification: the queue shuts down.
    pub(crate) fn wake_all(&mut self, wakes: &mut Wakes) {
        for waiter in &mut self.waiters {
            wakes.push(waiter.waker.take());
        }
    }

    /// The waiter to notify: the first, but preferably not the driver, which would have to hand over.
    fn pick(&self) -> u32 {
        let next = self.waiters[self.head as usize].next;
        if self.head == self.driver && next != NONE {
            next
        } else {
            self.head
        }
    }

    fn enter(&mut self) -> u32 {
        let index = if self.vacant == NONE {
            self.waiters.push(Waiter::default());
            u32::try_from(self.waiters.len() - 1).expect("fewer than 2^32 waiters")
        } else {
            let index = self.vacant;
            self.vacant = self.waiters[index as usize].next;
            index
        };
        let tail = self.tail;
        let waiter = &mut self.waiters[index as usize];
        waiter.state = WaiterState::Waits;
        waiter.previous = tail;
        waiter.next = NONE;
        if tail == NONE {
            self.head = index;
        } else {
            self.waiters[tail as usize].next = index;
        }
        self.tail = index;
        self.waiting += 1;
        index
    }

    fn link_front(&mut self, index: u32) {
        let head = self.head;
        let waiter = &mut self.waiters[index as usize];
        waiter.state = WaiterState::Waits;
        waiter.previous = NONE;
        waiter.next = head;
        if head == NONE {
            self.tail = index;
        } else {
            self.waiters[head as usize].previous = index;
        }
        self.head = index;
        self.waiting += 1;
    }

    fn unlink(&mut self, index: u32) {
        let Waiter { previous, next, .. } = self.waiters[index as usize];
        if previous == NONE {
            self.head = next;
        } else {
            self.waiters[previous as usize].next = next;
        }
        if next == NONE {
            self.tail = previous;
        } else {
            self.waiters[next as usize].previous = previous;
        }
        self.waiting -= 1;
    }
}
