//! The shared informer: one watch or several, one store, many handlers.
//!
//! [`pipeline`] shows the way of the data, from the watches to the handlers, in one file. All handles to one informer
//! share an [`Inner`](inner::Inner). A [`Feed`](feed::Feed) is one watch with the queue behind it, and a
//! [`Part`](part::Part) is the part of the store that one watch fills.

mod builder;
mod error;
mod feed;
mod handlers;
mod inner;
mod metrics_provider;
mod namespaces;
mod part;
mod pipeline;
mod shared_informer;
mod source;
mod spawned;
mod stopping;
mod within;

pub use builder::Builder;
pub use error::{RunError, Stopped, WaitError};
pub use metrics_provider::{Gauges, InformerIdentity, MetricsProvider};
pub use namespaces::NamespaceSet;
pub use shared_informer::SharedInformer;
pub use spawned::RunningInformer;
pub use within::Within;
