//! Informers for Kubernetes: a store that stays equal to what an API server holds of one kind, and handlers that
//! receive each change.
//!
//! ```text
//! API server ──LIST/WATCH──▶ Reflector ──deltas──▶ Fifo ──batch──▶ Indexer ──▶ handler 1..n (bounded each)
//! ```
//!
//! The parts are client-go's, under its names:
//!
//! * [`SharedInformer`]: all of it for one kind and selection. [`SharedInformer::builder`], `add_handler`,
//!   `add_indexer`, `lister`, `run`, `wait_synced`, `wait_for_resource_version`, `health`, `versions`.
//! * [`InformerFactory`]: one informer for each kind, scope, selector and form, for as long as it is used;
//!   `informer::<K>`, `start`, `wait_for_cache_sync`, `stop`, `shutdown`.
//! * [`NamespaceSet`]: the namespaces that informers watch, changed while they do.
//! * [`Event`] with [`UpdateReason`]; [`EventHandler`] (any `Fn(Event<S>)`), [`AsyncEventHandler`], [`EventStream`],
//!   [`Filtered`], [`HandlerOptions`], [`Policy`] of a queue, [`HandlerHandle`].
//! * [`Lister`], [`StoreSnapshot`] and [`Indexer`] with named indexes; [`FieldSelector`]; [`MutationCache`] for
//!   own writes; [`ObjectKey`], [`KeyRef`], [`ResourceVersion`].
//! * [`Stored`]: an entry of the store, and [`Form`]: how one is read. Every Kubernetes type is an entry of itself;
//!   [`Compact`] keeps its bytes. Built-in kinds come as protobuf: [`ReflectorOptions::protobuf`].
//! * [`Reflector`] with [`ReflectorOptions`], [`FirstList`], [`BackoffOptions`]; its recovery rules are in
//!   [`reflector`].
//! * [`Fifo`] with its two types [`RealFifo`] and [`DeltaFifo`]; [`Delta`], [`Deletion`], [`Snapshot`].
//! * [`CacheHealth`] for readiness, and [`MetricsProvider`] with [`Measurement`] for metrics.
//! * [`connect`]: a kube client that finds dead peers and retries nothing by itself, so that the bounds of [`reflector`]
//!   hold.
//! * [`Endpoint`], [`Scope`], [`Selection`]: the objects to watch; [`Limits`] of a request.
//!
//! Handlers should only enqueue keys; the code that acts on a key reads the present state from the [`Lister`]. Its
//! objects are shared: clone an object to change it.
//!
//! # Features
//!
//! `prometheus`: the metrics of informers through prometheus-client (the module `prometheus`). Nothing is on by
//! default.
//!
//! Time is tokio's; dates and jitter come from a [`Clock`]. Everything that runs is owned by the
//! future of [`SharedInformer::run`] and ends with it.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod decode;
mod event;
mod factory;
pub mod fifo;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(any(doc, doctest))]
pub mod guide;
mod handover;
mod health;
pub mod indexer;
mod informer;
mod lister;
mod metrics;
mod mutation;
mod object;
mod processor;
#[cfg(feature = "prometheus")]
pub mod prometheus;
pub mod reflector;
#[cfg(test)]
mod sample;
mod tasks;
mod turns;
mod use_count;

pub use backoff::BackoffOptions;
pub use event::{Event, UpdateReason};
pub use factory::{FactoryBuilder, InformerFactory, NotSynced};
pub use fifo::{Batch, Deletion, Delta, DeltaFifo, Fifo, KnownObjects, RealFifo, Snapshot};
pub use health::{Activity, CacheHealth, Failure, HandlerHealth, Quarantined, WatchHealth};
pub use indexer::{
    IndexFunction, IndexValues, Indexer, NAMESPACE_INDEX, StoreBytes, StoreSnapshot,
};
pub use informer::{
    Builder, Gauges, InformerIdentity, MetricsProvider, NamespaceSet, RunError, RunningInformer,
    SharedInformer, Stopped, WaitError, Within,
};
pub use lister::Lister;
pub use metrics::{InformerMetrics, Measurement};
pub use mutation::MutationCache;
pub use object::{
    Compact, Decoding, EntryType, FieldSelector, FieldSelectorError, Form, ProtobufObject,
    SkipPath, SkipPathError, Stored, ViewError,
};
pub use processor::{
    AsyncEventHandler, EventHandler, EventStream, Filtered, HandlerEnded, HandlerHandle,
    HandlerOptions, Policy,
};
pub use reeve_client::transport::{Endpoint, Limits, Scope, Selection};
pub use reeve_client::{KeyRef, ObjectKey, ParseKeyError, ResourceVersion, connect};
pub use reflector::{FirstList, Reflector, ReflectorOptions};

// Types of other crates in signatures of this one.
pub use jiff::Timestamp;
pub use kube_core::{Expression, Selector};
pub use reeve_clock::Clock;
pub use tokio_util::sync::CancellationToken;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
