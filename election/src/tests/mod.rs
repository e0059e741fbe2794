//! Electors against a small API server under paused time; the model tests are in [`model`].

mod acquiring;
mod duplicate_identity;
mod fence;
pub(crate) mod fixture;
mod leading;
mod model;
mod options;
mod releasing;
mod standby;
mod status;
mod transitions;
mod work;
