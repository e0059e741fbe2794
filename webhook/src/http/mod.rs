//! The server: HTTPS, limits, deadlines, readiness, metrics, and a stop that loses no call.

mod call;
mod deadline;
mod error;
mod metrics;
mod readiness;
mod server;

#[cfg(feature = "testing")]
pub(crate) use call::{Shared, Target};
pub use error::Error;
pub use metrics::Metrics;
pub use readiness::Readiness;
pub use server::{
    BODY_LIMIT, Bound, CONVERSION_BODY_LIMIT, Certificate, LINGER, MOST_CALLS, Server,
};
