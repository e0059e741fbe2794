//! A cloud controller manager for Services of type LoadBalancer: each gets a load balancer of a cloud, with listeners for
//! its ports and the nodes or Pods behind them.
//!
//! | layer | module |
//! |---|---|
//! | the cloud's calls, one for each attribute | [`provider`] |
//! | load balancers as the cluster wants them and as the cloud has them | [`model`], [`annotations`], [`backends`], [`desired`] |
//! | the wishes that a cloud can fulfil | [`fit`] |
//! | the difference of the two, as a list of calls | [`diff`], [`plan`], [`explain`] |
//! | the calls, and their failures as one error | [`applier`] |
//! | the marks of ownership, and the hash that saves comparisons | [`identity`], [`hash`] |
//! | what to do for a Service, and the reconciler that does it | [`intent`], [`build`] |
//! | the commands of the program | [`commands`], [`dev`] |

pub mod annotations;
pub mod applier;
pub mod backends;
pub mod commands;
mod context;
mod controller;
pub mod desired;
pub mod dev;
pub mod diff;
mod ensure;
pub mod explain;
mod find;
pub mod fit;
mod guard;
pub mod hash;
pub mod identity;
pub mod intent;
mod metrics;
pub mod model;
mod orphans;
mod pace;
pub mod plan;
pub mod provider;
mod recall;
mod remove;
mod settings;
mod surplus;
mod waiting;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reeve_controller::cache::View;
use reeve_controller::{Controller, Event, Manager, Runnable, handler, manager};
use reeve_workqueue::{ItemExponentialFailure, LOW_PRIORITY};

use controller::{BY_SERVICE, LoadBalancers, service_of};
use guard::Guard;
use metrics::Metrics;
use orphans::Orphans;
use pace::Pace;
use provider::Provider;
use provider::layer::Layered;
use recall::Recall;
pub use settings::Settings;

/// The name of the controller in logs, metrics and Events, and of its Lease.
pub const NAME: &str = "cloud-loadbalancer";

/// The back-off of a failed Service, as cloud-provider's.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// The time after which a reconcile is given up and tried again: a call of the cloud that never ends does not keep a
/// worker.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The reason why the program cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The controller is not valid.
    #[error(transparent)]
    Controller(#[from] reeve_controller::controller::BuildError),
    /// A kind cannot be indexed.
    #[error(transparent)]
    Index(#[from] reeve_controller::cache::IndexError),
    /// The manager is not valid, or refuses the controller.
    #[error(transparent)]
    Manager(#[from] manager::Error),
}

/// Builds the manager with the controller and the search for orphans, ready to run against `provider`.
///
/// # Errors
/// If an address cannot be bound, or settings contradict each other.
pub async fn build(
    builder: manager::Builder,
    provider: Arc<dyn Provider>,
    settings: Settings,
) -> Result<Manager, Error> {
    let manager = builder.build().await?;
    let metrics = Metrics::register(manager.metrics());
    let pace = Pace::new(Duration::from_secs(1) / settings.calls_per_second.max(1));
    let gate = manager.leader_client().gate().cloned();
    let guard = Guard::new(&*provider, gate, metrics.clone(), pace);
    let provider: Arc<dyn Provider> = Arc::new(Layered::new(provider, guard));
    let orphans = Orphans {
        provider: Arc::clone(&provider),
        client: manager.client().clone(),
        settings: settings.clone(),
        metrics: metrics.clone(),
        before: BTreeSet::new(),
        leftovers: BTreeMap::new(),
    };
    manager
        .caches()
        .add_index(&View::<EndpointSlice>::typed(), BY_SERVICE, |slice| {
            let key = service_of(slice);
            key.map(|key| Arc::from(key.to_string()))
                .into_iter()
                .collect()
        })?;
    manager.add_controller(watching(&manager, provider, settings, metrics)?)?;
    manager.add(Runnable::new("orphans", |stop| async move {
        orphans.run(stop).await;
        Ok::<_, Infallible>(())
    }))?;
    Ok(manager)
}

fn watching(
    manager: &Manager,
    provider: Arc<dyn Provider>,
    settings: Settings,
    metrics: Metrics,
) -> Result<Controller, Error> {
    let (readiness, default_class) = (settings.readiness, settings.default_class);
    let for_nodes = manager.caches().clone();
    let of_nodes =
        handler::map(move |_: &Node| watches::services_on_nodes(&for_nodes, default_class));
    let for_slices = manager.caches().clone();
    let of_slices = handler::map(move |slice: &EndpointSlice| {
        let key = service_of(slice);
        key.filter(|key| watches::reads_slices(&for_slices, key, default_class))
    });
    let workers = settings.workers;
    let controller = Controller::builder(NAME)
        .for_kind::<Service>()
        .with_predicate(watches::service_changed)
        // A change of one node reconciles many Services: those that changed themselves go first.
        .watches::<Node>(handler::prioritized(LOW_PRIORITY, of_nodes))
        .with_predicate(move |event: &Event<Node>| watches::node_changed(event, readiness))
        .watches::<EndpointSlice>(of_slices)
        .with_predicate(watches::slice_changed)
        .workers(workers)
        .rate_limiter(ItemExponentialFailure::new(BACK_OFF.0, BACK_OFF.1).jitter(0.2))
        .reconcile_timeout(TIMEOUT)
        .complete(LoadBalancers {
            provider,
            settings,
            metrics,
            recall: Recall::default(),
        })?;
    Ok(controller)
}
