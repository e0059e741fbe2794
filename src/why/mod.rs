//! Whether an address is banned, and why: the answer of `kubectl ipb why` and of the operator's page.
//!
//! ```text
//! every block ─▶ Search ─┐
//! configuration ─▶ Rules ┴▶ Answer: a verdict, one sentence, further facts, the blocks that matter
//! ```
//!
//! Everything here is a pure function of the blocks, the [`Rules`] and the time. [`Bans`] is the index for many
//! addresses at once. What a caller may not read is not guessed: [`Rules::unknown`] goes into the answer.

mod answer;
mod bans;
mod entry;
mod rules;
mod search;
mod span;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Verdict};
pub use bans::{Ban, Bans};
pub use entry::Entry;
pub use rules::{Refused, Rules};
pub use search::{MOST_BLOCKS, Search};
pub use span::{moment, short};
