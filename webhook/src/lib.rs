//! Admission and conversion webhooks: the counterpart of controller-runtime's package webhook.
//!
//! A [`Webhook`] is a function of a typed request that returns a decision. It is tested without a server. A [`Server`] serves
//! webhooks over HTTPS, with limits on all that a client may take.
//!
//! ```
//! use k8s_openapi::api::apps::v1::Deployment;
//! use reeve_webhook::admission::{Mutation, Request, Verdict};
//! use reeve_webhook::{Server, Webhook};
//!
//! async fn at_least_two(mut request: Request<Deployment>) -> Mutation<Deployment> {
//!     let Some(mut web) = request.object.take() else { return Mutation::unchanged() };
//!     let spec = web.spec.get_or_insert_default();
//!     if spec.replicas.unwrap_or(1) < 2 {
//!         spec.replicas = Some(2);
//!         return Mutation::changed(web).warn("replicas was raised to 2");
//!     }
//!     Mutation::unchanged()
//! }
//!
//! let server = Server::at(([127, 0, 0, 1], 0).into())
//!     .webhook(Webhook::mutating("replicas.example.com", at_least_two));
//! # let _ = server;
//! ```
//!
//! | to find | see |
//! |---|---|
//! | what a request has, and what a handler may return | [`admission`] |
//! | several versions of a custom resource | [`conversion`] |
//! | limits, readiness, the order of a stop | [`Server`] |
//! | metrics | [`Metrics`] |
//! | certificates that a program makes and renews | `certificates`, with the feature `rotation` |
//! | from a rule to a cluster; versions of a kind and their stored objects | `guide`, in the documentation of the crate |
//! | calls without a server, round trips of conversions | `testing`, with the feature of that name |
//!
//! # What the API server gets
//! | a handler | the API server |
//! |---|---|
//! | allows or denies | 200 and a review with the decision |
//! | gets an object that cannot be read | 200 and a denial with code 400 |
//! | returns an error, or panics | 500: the failure policy of the webhook decides |
//! | takes longer than the `timeout` of the call | 504: the failure policy decides |
//! | gets a body that is not a review of v1, or another kind | 400: the failure policy decides |
//! | has no place, because too many calls are in work | 429 with `Retry-After`: kube-apiserver sends the call again |
//!
//! controller-runtime turns errors and panics into denials with code 500, for which a failure policy of `Ignore` has no
//! effect.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admission;
#[cfg(feature = "rotation")]
pub mod certificates;
pub mod conversion;
#[cfg(any(doc, doctest))]
pub mod guide;
mod http;
#[cfg(test)]
mod sample;
#[cfg(feature = "testing")]
pub mod testing;

pub use crate::http::{
    BODY_LIMIT, Bound, CONVERSION_BODY_LIMIT, Certificate, Error, LINGER, MOST_CALLS, Metrics,
    Readiness, Server,
};
pub use admission::Webhook;
pub use conversion::Conversion;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
