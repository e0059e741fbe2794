//! HTTP and HTTPS servers with a limit on everything a client may take.
//!
//! | part | module |
//! |---|---|
//! | a server, its routes and its limits | [`http`] |
//! | certificates that are read again when their files change, or made | [`certificates`] |
//! | a filter by bearer token | [`access`] |
//! | `/healthz` and `/readyz` | [`health`] |
//! | `/metrics` | [`metrics`], and [`metrics_server`] for a whole server |
//! | pages with the state of a program | [`debug`] |
//!
//! The crate is independent of Kubernetes: [`access`] uses a [`Reviewer`](access::Reviewer), which `reeve-controller`
//! implements with the TokenReview and the SubjectAccessReview of an API server.
//!
//! Time is tokio's; dates and randomness come from a [`reeve_clock::Clock`].

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access;
#[cfg(feature = "tls")]
pub mod certificates;
pub mod debug;
pub mod health;
pub mod http;
pub mod metrics;
pub mod metrics_server;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
