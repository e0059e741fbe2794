//! Admission reviews, `admission.k8s.io/v1`: requests, verdicts, changes and their patches.

mod change;
mod failure;
mod outcome;
mod request;
mod response;
mod review;
mod verdict;
mod warnings;
mod webhook;

pub use failure::Failure;
pub use outcome::Outcome;
pub use request::{Operation, Request, UserInfo};
pub use response::Response;
pub use verdict::{Cause, Mutation, Verdict};
pub use warnings::{MOST_WARNINGS, WARNING_LENGTH};
pub use webhook::{Form, Webhook};

pub(crate) use review::type_of;
