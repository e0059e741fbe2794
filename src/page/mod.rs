//! The page of the operator: what is banned, what ends next, what fails and why, and the search for an address.
//!
//! ```text
//! caches ─ Reader ─▶ State (bounded, kept for a few seconds) ─▶ /blocks/state ┐
//!             └─────▶ why::Answer ───────────────────────────▶ /blocks/why    ├─ guard ─ listener
//!                                    page.html, page.js ─────▶ /blocks        ┘
//! ```
//!
//! It only reads, from the caches of its replica. The page is one document without external parts; its script gets the
//! two JSON documents, and writes texts of users as text. The answers are bounded: a cluster with 100,000 blocks has
//! the same page.
//!
//! # Access
//! See [`Guard`]. Without a token file the page is open on a loopback address, and elsewhere for users that the API
//! server authorizes to get its paths. A browser asks for the token as a password.
//!
//! # When something fails
//! A state that cannot be read answers 503 with the reason, which the page shows while it asks again. Of more than two
//! readings at once the others wait five seconds, then they are answered 503.

mod guard;
mod reader;
mod server;
mod state;
#[cfg(test)]
pub(crate) mod tests;

pub use guard::Guard;
pub use reader::{Reader, Sources};
pub use server::{Error, Settings, bind, page};
pub use state::{Configuration, Counts, MOST_ROWS, State};
