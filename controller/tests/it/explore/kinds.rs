//! The kinds of the corpus: parents with settings and notes, and children of every sort.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube_client::api::{DeleteParams, Preconditions};
use kube_derive::CustomResource;
use reeve_controller::client::{self, Object, Patch};
use reeve_controller::testing::explore::World;
use reeve_controller::{
    Context, Controller, ObjectKey, Outcome, Request, handler, owner, reconcile,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A program that an operator runs.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "App",
    namespaced,
    status = "AppStatus",
    crates(
        kube_core = "::reeve_controller::kube_core",
        serde_json = "::reeve_controller::serde_json"
    )
)]
pub(super) struct AppSpec {
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct AppStatus {
    #[serde(default)]
    notes: BTreeMap<String, String>,
}

/// The label of a child with the name of its parent.
const OF: &str = "of";
/// The label of a child with the uid of its parent.
const UID: &str = "parent";

/// A kind with settings that a person writes, and notes that its controller writes.
pub(super) trait Parent: Object {
    /// The path of the settings.
    const SETTINGS: &str;
    /// The path of the notes.
    const NOTES: &str;
    /// Whether notes are in the status.
    const STATUS: bool;
}

impl Parent for App {
    const SETTINGS: &str = "/spec/settings";
    const NOTES: &str = "/status/notes";
    const STATUS: bool = true;
}

impl Parent for ConfigMap {
    const SETTINGS: &str = "/data";
    const NOTES: &str = "/metadata/annotations";
    const STATUS: bool = false;
}

/// A kind of children.
pub(super) trait Child: Object {
    /// What an object of the kind needs.
    fn body() -> Value {
        json!({})
    }
}

impl Child for Secret {}
impl Child for ConfigMap {}
impl Child for ServiceAccount {}
impl Child for Service {
    fn body() -> Value {
        json!({"spec": {"ports": [{"port": 80}]}})
    }
}
impl Child for PersistentVolumeClaim {
    fn body() -> Value {
        json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }})
    }
}
impl Child for PodDisruptionBudget {
    fn body() -> Value {
        json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}})
    }
}
impl Child for Pod {
    fn body() -> Value {
        json!({"spec": {"containers": [{"name": "a", "image": "a"}]}})
    }
}
impl Child for StatefulSet {
    fn body() -> Value {
        let labels = json!({"app": "a"});
        json!({"spec": {
            "serviceName": "a", "replicas": 1, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "a", "image": "a"}]},
            },
        }})
    }
}

/// `value` below `path`.
fn below(path: &str, value: Value) -> Value {
    let mut all = value;
    for part in path.rsplit('/').filter(|part| !part.is_empty()) {
        all = json!({ part: all });
    }
    all
}

fn text(object: &impl Serialize, path: &str) -> Option<String> {
    let value = serde_json::to_value(object).unwrap();
    Some(value.pointer(path)?.as_str()?.to_owned())
}

/// A setting of a parent.
pub(super) fn setting<P: Parent>(parent: &P, name: &str) -> Option<String> {
    text(parent, &format!("{}/{name}", P::SETTINGS))
}

/// A setting of a parent that is a number, or 0.
pub(super) fn number<P: Parent>(parent: &P, name: &str) -> u32 {
    setting(parent, name).map_or(0, |text| text.parse().unwrap())
}

/// A note of a parent.
pub(super) fn note<P: Parent>(parent: &P, name: &str) -> Option<String> {
    text(parent, &format!("{}/{name}", P::NOTES))
}

/// Writes a note of this parent, and of no other of its name.
pub(super) async fn write_note<P: Parent>(
    ctx: &Context,
    parent: &P,
    name: &str,
    value: &str,
) -> Result<(), client::Error> {
    let mut patch = below(P::NOTES, json!({ name: value }));
    patch["metadata"]["uid"] = json!(parent.meta().uid);
    let key = ObjectKey::of(parent);
    if P::STATUS {
        ctx.client()
            .patch_status::<P>(&key, Patch::merge(patch))
            .await?;
    } else {
        ctx.client().patch::<P>(&key, Patch::merge(patch)).await?;
    }
    Ok(())
}

/// The child of `parent` with a suffix; labels name the parent.
pub(super) fn child<P: Parent, C: Child>(parent: &P, suffix: &str) -> C {
    let meta = parent.meta();
    let name = meta.name.as_deref().unwrap();
    let mut object = C::body();
    object["metadata"] = json!({
        "name": format!("{name}{suffix}"), "namespace": meta.namespace,
        "labels": {OF: name, UID: meta.uid},
    });
    serde_json::from_value(object).unwrap()
}

/// As [`child`], and the parent owns it: it ends with the parent.
pub(super) fn owned<P: Parent, C: Child>(parent: &P, suffix: &str) -> C {
    let mut child = child(parent, suffix);
    owner::set_controller(parent, &mut child).unwrap();
    child
}

/// Sets a value of a child.
pub(super) fn with<C: Child>(mut child: C, name: &str, value: impl ToString) -> C {
    let annotations = &mut child.meta_mut().annotations;
    annotations
        .get_or_insert_default()
        .insert(name.to_owned(), value.to_string());
    child
}

/// A value of a child.
pub(super) fn value(child: &impl Object, name: &str) -> Option<String> {
    child.meta().annotations.as_ref()?.get(name).cloned()
}

/// Sets a value of a child on the server.
pub(super) async fn write_value<C: Child>(
    ctx: &Context,
    child: &C,
    name: &str,
    value: impl ToString,
) -> Result<(), client::Error> {
    let patch = json!({"metadata": {
        "uid": child.meta().uid, "annotations": {name: value.to_string()},
    }});
    let key = ObjectKey::of(child);
    ctx.client()
        .patch::<C>(&key, Patch::merge(patch))
        .await
        .map(drop)
}

/// Whether the child is of this parent, and not of an earlier one of its name.
pub(super) fn is_of(child: &impl Object, parent: &impl Object) -> bool {
    let labels = child.meta().labels.as_ref();
    labels.and_then(|labels| labels.get(UID)) == parent.meta().uid.as_ref()
}

/// The children that the cache has for the parent of this name.
pub(super) fn children<C: Child>(
    ctx: &Context,
    request: &Request,
) -> Result<Vec<std::sync::Arc<C>>, reconcile::Error> {
    let name = request.name.to_string();
    let of =
        move |child: &C| child.meta().labels.as_ref().and_then(|all| all.get(OF)) == Some(&name);
    Ok(ctx.lister::<C>()?.list_where(of)?)
}

/// The child with a suffix that the server has for the parent, which the cache may not have yet. The child of an earlier
/// parent of the name is none.
pub(super) async fn live<P: Parent, C: Child>(
    ctx: &Context,
    parent: &P,
    suffix: &str,
) -> Result<Option<C>, client::Error> {
    let key = ObjectKey::of(&child::<P, C>(parent, suffix));
    let found = client::optional(ctx.client().get::<C>(&key).await)?;
    Ok(found.filter(|found| is_of(found, parent)))
}

/// Deletes what has the name of `child`: the wrong way.
pub(super) async fn delete_by_name<C: Child>(
    ctx: &Context,
    child: &C,
) -> Result<(), client::Error> {
    let key = ObjectKey::of(child);
    let params = DeleteParams::default();
    client::optional(ctx.client().delete::<C>(&key, &params).await).map(drop)
}

/// Deletes this very object, which has a uid.
pub(super) async fn delete_this<C: Child>(ctx: &Context, child: &C) -> Result<(), client::Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: child.meta().uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let key = ObjectKey::of(child);
    client::optional(ctx.client().delete::<C>(&key, &params).await).map(drop)
}

/// Deletes by uid in the right form, and by name in the wrong one.
pub(super) async fn delete<C: Child>(
    ctx: &Context,
    child: &C,
    right: bool,
) -> Result<(), client::Error> {
    if right {
        delete_this(ctx, child).await
    } else {
        delete_by_name(ctx, child).await
    }
}

/// A controller of parents with one kind of children.
pub(super) fn one<P, C, F, Fut>(reconcile: F) -> Vec<Controller>
where
    P: Parent,
    C: Child,
    F: Fn(Context, Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, reconcile::Error>> + Send + 'static,
{
    let controller = Controller::builder("corpus")
        .for_kind::<P>()
        .watches::<C>(handler::map(parents::<C>))
        .complete(reconcile::function(reconcile));
    vec![controller.unwrap()]
}

/// A controller of parents with two kinds of children.
pub(super) fn two<P, C, D, F, Fut>(reconcile: F) -> Vec<Controller>
where
    P: Parent,
    C: Child,
    D: Child,
    F: Fn(Context, Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, reconcile::Error>> + Send + 'static,
{
    let controller = Controller::builder("corpus")
        .for_kind::<P>()
        .watches::<C>(handler::map(parents::<C>))
        .watches::<D>(handler::map(parents::<D>))
        .complete(reconcile::function(reconcile));
    vec![controller.unwrap()]
}

fn parents<C: Child>(child: &C) -> Option<Request> {
    let name = child.meta().labels.as_ref()?.get(OF)?;
    Some(ObjectKey::namespaced("default", &**name))
}

fn settings<P: Parent>(settings: &Value) -> Value {
    below(P::SETTINGS, settings.clone())
}

/// Creates the parent `a`, and waits.
pub(super) async fn make<P: Parent>(world: &World<impl Sized>, with: Value) {
    let mut object = settings::<P>(&with);
    object["metadata"] = json!({"name": "a", "namespace": "default"});
    world.create::<P>(object).await;
    world.settle().await;
}

/// Changes settings of the parent `a`, and waits.
pub(super) async fn change<P: Parent>(world: &World<impl Sized>, with: Value) {
    world.patch::<P>("default", "a", settings::<P>(&with)).await;
    world.settle().await;
}

/// Deletes the parent `a`, and waits.
pub(super) async fn remove<P: Parent>(world: &World<impl Sized>) {
    world.delete::<P>("default", "a").await;
    world.settle().await;
}
