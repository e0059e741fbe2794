//! Fills a queue with the state of an API server and its changes: lists, then watches, without end.
//!
//! # When things fail
//!
//! | event | reaction |
//! |---|---|
//! | the server offers no streaming lists (422, 501, or 400 where pages can be read) | reads pages; remembers it for an hour, for all informers of a factory and kinds of a group |
//! | the server refuses this streaming list (another 400, 405, 406, 415), or never ends it | reads pages; remembers it for an hour, for this watch |
//! | the server is silent before the end of a streaming list, or does not answer it in time | reads pages; remembers it for an hour, for this watch. If a streaming list of the group was complete before: backs off and tries again; reads pages this time if that is silent, too |
//! | a continue token expires between pages | reads everything at once |
//! | everything at once is too large, or takes too long | reads pages; remembers it for an hour |
//! | a streaming list breaks off twice in a row | reads pages; remembers it for an hour |
//! | the watch ends when it was asked to | watches again from the last version |
//! | the watch ends early, or the connection breaks | the same, within seven seconds, drawn at random: many informers do not return at once |
//! | the watch ends at once, again and again | backs off between attempts |
//! | 410, as HTTP status or in the stream; an object in the stream that the server itself cannot read | lists again, after a back-off |
//! | 429, 5xx, no connection | backs off (at least `Retry-After`) and watches again, without a list |
//! | a list has no version, or "0", so that the watch after it begins with all objects in any order | takes them all; lists again if the watch ends, or is silent for 90 s, before anything but additions came |
//! | a page of a list comes again | lists again, after a back-off |
//! | a bookmark has no version | ignores it |
//! | the watch is silent for 90 s | opens a second one at the last version, then drops the first |
//! | an object cannot be read, is of another type, or its type or a transform panics | quarantines it; the others go on |
//! | a list is older than the known version | refuses it; after three in a row, accepts that the server's history began again |
//! | the store has not taken the last list yet, because a handler blocks it | waits before it lists again; a watch goes on until the queue is full |
//! | an event is not newer than the known version | drops it; after ten in a row, asks the server for its version |
//! | the third 5xx, undecodable line or too large version in a row in a stream | lists again, after a back-off |
//!
//! In every case a server receives at most 120 lists and watches in an hour
//! ([`ReflectorOptions::request_interval`]). Every wait ends when the reflector is stopped.
//!
//! # Inside
//!
//! `phase.rs` holds the phases of a reflector and the table of their transitions, a pure function. It decides with the
//! versions seen (`history.rs`), the ways in which the server offers its state (`offers.rs`, `refusals.rs`) and the
//! errors of watches (`react.rs`). `run.rs` performs the phases: with `stream.rs` and `initial.rs`, `list.rs`,
//! `watch.rs`, and the waits between them (`waits.rs`, `pace.rs`). Many lines (`frames.rs`, `chunk.rs`) and large pages
//! (`pages.rs`) are decoded by other threads (`threads.rs`).

mod builder;
mod chunk;
mod encoding;
mod error;
mod frames;
mod history;
mod initial;
mod list;
mod offers;
mod opened;
mod options;
mod pace;
mod pages;
mod phase;
mod react;
mod refusals;
mod run;
mod stream;
mod threads;
mod waits;
mod watch;

pub use builder::Builder;
pub use options::{FirstList, ReflectorOptions};
pub(crate) use refusals::Refusals;
pub use run::Reflector;
pub(crate) use run::Transform;
