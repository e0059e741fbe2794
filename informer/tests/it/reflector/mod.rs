//! The requests of the reflector, and its reaction to the answers. Named cases of client-go's reflector tests, and
//! the servers that other clients fail on.

mod ending;
mod epochs;
mod lists;
mod streaming;
mod unreadable;
mod untyped;
mod watches;

use std::num::NonZeroU32;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::DynamicObject;
use reeve_informer::{
    Activity, BackoffOptions, Compact, Endpoint, FirstList, Form, HandlerOptions, Limits,
    NamespaceSet, ObjectKey, Policy, ReflectorOptions, SharedInformer, Stored,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::{builder, clock, millis, run, seconds, start};
use crate::script::*;

const HOUR: u64 = 3600;

/// The number of requests in the hour after the start, to a server that always answers the same.
async fn requests_in_an_hour(script: &Script) -> usize {
    let running = start(script);
    seconds(HOUR).await;
    let count = script.asked().len();
    running.stop().await;
    count
}

fn any() -> ReflectorOptions {
    ReflectorOptions::new()
        .first_list(FirstList::Any)
        .streaming(false)
}

fn pages_only() -> ReflectorOptions {
    ReflectorOptions::new().streaming(false)
}
