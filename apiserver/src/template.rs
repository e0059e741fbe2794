//! The state of a server as a value, with which other servers start.

use std::sync::{Arc, LazyLock};

use reeve_clock::Clock;

use crate::core::Core;
use crate::definitions::Installed;
use crate::kinds;
use crate::registry::{Registry, Served};
use crate::restore::{RestoreError, restore};
use crate::store::{Copy, History, Store};

/// What a server serves without custom kinds.
static BUILT_IN: LazyLock<Arc<Served>> = LazyLock::new(|| {
    let registry = Registry::default();
    registry.set("", kinds::builtin());
    registry.served()
});

/// The objects and custom kinds of a server at one time: see [`ApiServer::template`](crate::ApiServer::template). Cloning is
/// cheap; objects are shared and never change.
#[derive(Clone)]
pub struct Template(Arc<Prepared>);

struct Prepared {
    objects: Copy,
    served: Arc<Served>,
    definitions: Installed,
}

// === impl Template ===

impl Template {
    pub(crate) fn of(core: &Core) -> Self {
        // No definition changes what is served meanwhile.
        let read = || (core.store.copy(), core.registry.served());
        let (definitions, (objects, served)) = core.definitions.copy_with(read);
        Self(Arc::new(Prepared {
            objects,
            served,
            definitions,
        }))
    }

    pub(crate) fn store(&self, step: u64, history: History) -> Store {
        Store::of(&self.0.objects, step, history)
    }

    pub(crate) fn resources(&self) -> (Registry, Installed) {
        let (definitions, ()) = self.0.definitions.copy_with(|| ());
        (Registry::of(Arc::clone(&self.0.served)), definitions)
    }

    /// Brings a server back to it; returns how many objects were written or removed.
    pub(crate) fn restore(&self, core: &Core) -> Result<usize, RestoreError> {
        restore(core, &self.0.objects)
    }

    /// The version of the last write before it was made.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.0.objects.revision()
    }

    /// A clock whose uids are not those of the template's objects, though both servers may have one seed.
    pub(crate) fn clock(&self, clock: &Clock) -> Clock {
        clock.branch(self.0.objects.revision())
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template")
            .field("revision", &self.0.objects.revision())
            .finish_non_exhaustive()
    }
}

/// The resources of a server without custom kinds, with their tables in `store`.
pub(crate) fn built_in(store: &Store) -> (Registry, Installed) {
    let all = BUILT_IN.all().chain(BUILT_IN.unserved.values());
    for info in all.filter(|info| !info.storage.is_empty()) {
        store.create_table(&info.storage);
    }
    (Registry::of(Arc::clone(&BUILT_IN)), Installed::default())
}

#[cfg(test)]
mod tests {
    use http::Request as HttpRequest;
    use kube_client::Client;
    use serde_json::{Value, json};

    use super::*;
    use crate::ApiServer;

    fn clock() -> Clock {
        Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1)
    }

    async fn get(client: &Client, path: &str) -> Value {
        let request = HttpRequest::get(path).body(Vec::new()).unwrap();
        client.request(request).await.unwrap()
    }

    async fn post(client: &Client, path: &str, object: Value) -> Value {
        let request = HttpRequest::post(path).header("Content-Type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        client.request(request).await.unwrap()
    }

    fn definition() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "apps.a.example"},
            "spec": {
                "group": "a.example", "scope": "Namespaced", "names": {"plural": "apps", "kind": "App"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"size": {"type": "integer"}},
                }}}],
            },
        })
    }

    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const APPS: &str = "/apis/a.example/v1/namespaces/default/apps";

    #[tokio::test(start_paused = true)]
    async fn a_server_starts_with_the_objects_and_kinds_of_its_template_and_goes_its_own_way() {
        let first = ApiServer::builder().clock(clock()).start().await.unwrap();
        post(&first.client(), DEFINITIONS, definition()).await;
        let app = |name: &str| json!({"apiVersion": "a.example/v1", "kind": "App", "metadata": {"name": name}, "size": 1});
        let a = post(&first.client(), APPS, app("a")).await;
        let template = first.template();
        post(&first.client(), APPS, app("later")).await;
        let builder = || ApiServer::builder().clock(clock()).template(&template);
        let (one, other) = (
            builder().start().await.unwrap(),
            builder().start().await.unwrap(),
        );
        let names = async |server: &ApiServer| -> Vec<String> {
            let list = get(&server.client(), APPS).await;
            let items = list["items"].as_array().unwrap().iter();
            items
                .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(names(&one).await, ["a"]);
        assert_eq!(get(&one.client(), &format!("{APPS}/a")).await, a);
        let b = post(&one.client(), APPS, app("b")).await;
        assert_eq!(names(&one).await, ["a", "b"]);
        assert_eq!(names(&other).await, ["a"]);
        let version = |object: &Value| -> u64 {
            let version = object["metadata"]["resourceVersion"].as_str().unwrap();
            version.parse().unwrap()
        };
        assert!(version(&b) > version(&a));
        // The clocks have one seed.
        let namespaces = get(&one.client(), "/api/v1/namespaces").await;
        let items = namespaces["items"].as_array().unwrap();
        let mut uids: Vec<&Value> = items.iter().map(|item| &item["metadata"]["uid"]).collect();
        uids.extend([&a["metadata"]["uid"], &b["metadata"]["uid"]]);
        let count = uids.len();
        uids.sort_by_key(|uid| uid.as_str());
        uids.dedup();
        assert_eq!((uids.len(), count), (6, 6));
        for server in [first, one, other] {
            server.shutdown().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_template_does_not_have_is_made_and_its_history_is_gone() {
        let first = ApiServer::builder().clock(clock()).start().await.unwrap();
        let builder = ApiServer::builder().clock(clock());
        // The first server has no roles.
        let server = builder
            .rbac()
            .template(&first.template())
            .start()
            .await
            .unwrap();
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin";
        assert_eq!(get(&server.client(), roles).await["kind"], "ClusterRole");
        let old = "/api/v1/namespaces?watch=true&resourceVersion=10003";
        let request = HttpRequest::get(old).body(Vec::new()).unwrap();
        let refused = server.client().request_text(request).await.unwrap();
        assert!(refused.contains("too old resource version"), "{refused}");
        first.shutdown().await.unwrap();
        server.shutdown().await.unwrap();
    }
}
