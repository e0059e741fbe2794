//! Admission webhooks: which ones a write asks, how, and what follows from the answers.
//!
//! [`Hooks`] reads the stored configurations, [`matching`] decides which webhooks a write asks and in which version of its
//! object, [`review`] makes the question and checks the answer, and [`backend`] carries both. [`Mutating`] asks one webhook
//! after the other, [`Validating`] all at once.
//! (apiserver: `pkg/admission/plugin/webhook`.)

mod backend;
mod call;
mod hook;
mod hooks;
mod matching;
mod mutating;
mod review;
#[cfg(test)]
mod tests;
mod validating;
mod view;

pub(super) use mutating::Mutating;
pub(super) use validating::Validating;
