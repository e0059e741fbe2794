//! What happens after a write: definitions become resources, deletions are finished.
//!
//! One background task, owned by the server, does what kube-controller-manager and the CRD
//! controllers do on a real cluster, and nothing else of theirs: owners' dependents are collected,
//! terminating namespaces and definitions are emptied.

pub(crate) mod collector;
pub(crate) mod definitions;
pub(crate) mod namespaces;
#[cfg(test)]
mod tests;
pub(crate) mod versions;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::core::Core;
use crate::http::media::{Accepted, Encoding, Shape};
use crate::http::query::Parameters;
use crate::http::warnings::Warnings;
use crate::rbac::User;
use crate::resource::ResourceInfo;
use crate::store::{Chore, Key};
use crate::verbs::{FieldValidation, Request};

/// Chores that the disk stopped are tried again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Makes what every cluster has, and serves what was stored.
pub(crate) fn start(core: &Core) {
    definitions::serve_stored(core);
    namespaces::create_initial(core);
    if core.options.rbac {
        bootstrap_policy(core);
    }
    // What the last run left unfinished, and what came of the above, is done before the first request.
    loop {
        let chores = core.store.take_chores();
        if chores.is_empty() || !act_on(core, chores) {
            return;
        }
    }
}

/// The roles and bindings that every cluster has.
fn bootstrap_policy(core: &Core) {
    for object in crate::rbac::bootstrap_objects() {
        let (Some(kind), Some(name)) =
            (object["kind"].as_str(), object["metadata"]["name"].as_str())
        else {
            continue;
        };
        let served = core.registry.served();
        let Some(info) = served.of_kind("rbac.authorization.k8s.io", "v1", kind) else {
            continue;
        };
        let key = Key::new(object["metadata"]["namespace"].as_str(), name);
        if core.store.get(&info.storage, key.as_str()).is_some() {
            continue;
        }
        let request = internal_request(core, info, &key);
        if let Err(status) = crate::verbs::create::create(core, &request, object.clone()) {
            tracing::warn!(%status, name, "the default role could not be made");
        }
    }
}

/// Does the chores of the store until it is closed.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let chores = core.store.next_chores().await;
        if core.store.is_closed() {
            return;
        }
        if !act_on(&core, chores) {
            sleep(RETRY_AFTER).await;
        }
        core.store.upkeep();
        // Others run between two rounds, also on a runtime of one thread.
        tokio::task::yield_now().await;
    }
}

/// Does some chores; those that the disk stopped are kept for later, which `false` says.
fn act_on(core: &Core, chores: Vec<Chore>) -> bool {
    let mut all = true;
    for chore in chores {
        if core.store.is_closed() {
            return true;
        }
        let failures = core.store.failures();
        act(core, chore.clone());
        // Each chore starts from what is stored: done twice, it does no harm.
        if core.store.failures() != failures {
            core.store.add_chore(chore);
            all = false;
        }
    }
    all
}

fn act(core: &Core, chore: Chore) {
    tracing::trace!(?chore, "lifecycle");
    match chore {
        Chore::Owner(uid) => collector::owner_changed(core, &uid),
        Chore::Dependent(storage, key) => collector::references_changed(core, &storage, &key),
        Chore::Finalize(storage, key) => collector::finalize(core, &storage, &key),
        Chore::Namespace(name) => namespaces::look_after(core, &name),
        Chore::Definition(storage) => definitions::look_after(core, &storage),
    }
}

/// A request of the server itself for one object.
fn internal_request(core: &Core, info: &Arc<ResourceInfo>, key: &Key) -> Request {
    // Objects are worked on as they are stored: nothing is converted.
    let info = match info.unconvertible_up_to {
        0 => info.clone(),
        _ => Arc::new(ResourceInfo {
            unconvertible_up_to: 0,
            ..ResourceInfo::clone(info)
        }),
    };
    Request {
        info,
        namespace: key.namespace().to_owned(),
        name: key.name().to_owned(),
        subresource: String::new(),
        query: Parameters::default(),
        accepted: Accepted {
            encoding: Encoding::Json,
            shape: Shape::Whole,
        },
        user: User::admin(),
        agent: "reeve-apiserver".to_owned(),
        now: core.clock.now(),
        dry_run: false,
        validation: FieldValidation::Ignore,
        warnings: Warnings::default(),
        stale: None,
    }
}
