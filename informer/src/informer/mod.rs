//! The shared informer: one watch or several, one store, many handlers.
//!
//! [`pipeline`] says the way of the data, from the watches to the handlers, in one file. [`Inner`](inner::Inner) is what
//! all handles to one informer share; a [`Feed`](feed::Feed) is one watch with the queue behind it, and a
//! [`Part`](part::Part) is what one watch fills of the store.

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
mod stopping;
mod within;

pub use builder::Builder;
pub use error::{RunError, Stopped, WaitError};
pub use metrics_provider::{Gauges, InformerIdentity, MetricsProvider};
pub use namespaces::NamespaceSet;
pub use shared_informer::SharedInformer;
pub use within::Within;
