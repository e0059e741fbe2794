//! HTTP requests that leave the operator: to gateways and to notification hooks.
//!
//! [`Outbound`] is the seam: [`Http`] sends over the network in production, tests answer in process.
//! An editor of the configuration chooses where these requests go. So every request is held to [`Limits`]
//! (connect and total time, answer size), follows no redirect, uses no proxy from the environment, and
//! connects only to an address that [`AddressPolicy`] allows.

mod http;
mod request;
#[cfg(all(test, feature = "dev"))]
mod tests;

pub use http::{AddressPolicy, Http, HttpBuilder};
pub use request::{BoxFuture, Error, InProcess, Limits, Outbound};
