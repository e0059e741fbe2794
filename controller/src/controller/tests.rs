//! Controllers in a manager against a small API server, under paused time.

mod builder;
mod clusters;
mod deadlines;
mod defaults;
mod election;
mod lag;
mod late;
mod lease;
mod life;
mod lost_writes;
mod outcomes;
mod own_writes;
mod panics;
mod requests;
mod results;
mod sources;
mod spans;
mod waiting_writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::fake::Managed as _;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::context::Context;
use crate::fake::{Fake, Fate, Running, eventually, eventually_within};
use crate::leader_election::Options as Election;
use crate::manager::{Error as ManagerError, Manager, State};
use crate::reconcile::{self, Outcome};
use crate::{handler, predicate, source};

type Seen = Arc<Mutex<Vec<String>>>;

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/ns/configmaps/{name}")
}

fn map(value: &str) -> serde_json::Value {
    json!({"metadata": {}, "data": {"key": value}})
}

async fn start(fake: &Fake, controllers: impl IntoIterator<Item = Controller>) -> Running {
    let manager = fake.manager().build().await.unwrap();
    for controller in controllers {
        manager.add_controller(controller).unwrap();
    }
    Running::start(manager)
}

/// Starts `manager` with one controller.
async fn run(manager: Manager, controller: Controller) -> Running {
    manager.add_controller(controller).unwrap();
    Running::start(manager)
}

/// A reconciler that records its request and returns the result of `answer`.
fn noting<F>(seen: &Seen, answer: F) -> impl reconcile::Reconciler
where
    F: Fn(&Context, &Request) -> Result<Outcome, reconcile::Error> + Send + Sync + 'static,
{
    let seen = Arc::clone(seen);
    reconcile::function(move |ctx: Context, request: Request| {
        seen.lock().push(request.to_string());
        let answer = answer(&ctx, &request);
        async move { answer }
    })
}

fn done(seen: &Seen) -> impl reconcile::Reconciler {
    noting(seen, |_, _| Ok(Outcome::done()))
}
