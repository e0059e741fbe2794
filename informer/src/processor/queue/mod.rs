//! The events that wait for one handler, and what happens when they are too many.

mod event_queue;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub(super) use event_queue::{EventQueue, Pushed};
