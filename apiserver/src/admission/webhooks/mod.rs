//! Admission webhooks: which ones a write asks, how, and what follows from the answers.
//!
//! [`Hooks`] reads the stored configurations, and [`review`] makes the question and checks the answer, and a [`Backend`](crate::webhooks::Backend) carries both. [`Mutating`] asks one webhook
//! after the other, [`Validating`] all at once.
//! (apiserver: `pkg/admission/plugin/webhook`.)

mod call;
mod conditions;
mod hook;
mod hooks;
mod mutating;
mod review;
mod subject;
#[cfg(test)]
mod tests;
mod validating;

pub(super) use mutating::Mutating;
pub(super) use validating::Validating;
