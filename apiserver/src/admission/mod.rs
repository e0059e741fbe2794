//! Admission: the steps between a request that is understood and one that is stored.
//!
//! Each write asks the [`Chain`] twice ([`pipeline`](crate::verbs::pipeline)): [`Admission::mutate`] may change the object
//! with its defaults, and [`Admission::validate`] sees it as it will be stored. A step may wait, for seconds: no lock
//! is held meanwhile, and what the write claimed is released when its request is dropped. A new step is a type that
//! implements [`Admission`] and a line in [`Chain::of_server`].

mod chain;
mod change;
mod matching;
mod namespace_lifecycle;
mod policies;
mod reinvocation;
mod request;
mod review_request;
mod server;
mod step;
mod view;
mod webhooks;

pub(crate) use chain::Chain;
pub(crate) use reinvocation::Reinvocation;
pub(crate) use request::{AdmissionRequest, Old, Operation};
pub(crate) use server::Server;
pub(crate) use step::Admission;
pub(crate) use step::Answer;
