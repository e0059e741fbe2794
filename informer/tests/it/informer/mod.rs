//! The shared informer: handlers, indexes, life cycle. Named cases of client-go's shared informer tests.

mod handlers;
mod lifecycle;
mod measured;
mod slow;
mod store;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_informer::{
    Activity, BackoffOptions, Event, Filtered, Gauges, HandlerOptions, InformerIdentity,
    InformerMetrics, Limits, Measurement, MetricsProvider, MutationCache, ObjectKey, Policy,
    ReflectorOptions, ResourceVersion, RunError, Scope, SharedInformer, Stored, WaitError, indexer,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    Maps, Received, builder, contents, millis, on_threads, run, seconds, short, start,
};
use crate::script::*;

/// A server with three objects and a watch that sends the lines of a channel.
pub fn three() -> (Script, impl Fn(Bit)) {
    let (sender, receiver) = mpsc::unbounded_channel::<Bit>();
    let receiver = Arc::new(Mutex::new(receiver));
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[object("a", "1"), object("b", "2"), object("c", "3")],
        ),
        Answer::Live(receiver),
    ]);
    (script, move |bit| sender.send(bit).unwrap())
}

fn futures_are_pending<F: Future + Unpin>(future: &mut F) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context).is_pending()
}
