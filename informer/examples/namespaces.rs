//! Two kinds in a set of namespaces that changes: `cargo run -p reeve-informer --example namespaces [-- --cluster]`.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

mod somewhere;

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use reeve_informer::{
    Endpoint, Form, HandlerOptions, InformerFactory, NamespaceSet, Selection, SharedInformer,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let somewhere = somewhere::Somewhere::find().await?;
    let factory = InformerFactory::builder(somewhere.client.clone()).build();
    let namespaces = NamespaceSet::new(["kube-system"]);
    let maps = within::<ConfigMap>(&factory, &namespaces);
    let accounts = within::<ServiceAccount>(&factory, &namespaces);
    let handle = accounts.add_handler(
        |event| println!("service accounts: {event:?}"),
        HandlerOptions::new(),
    )?;
    factory.start();
    factory.wait_for_cache_sync(Duration::from_secs(30)).await?;
    println!("{} ConfigMaps in kube-system", maps.lister().len());

    namespaces.insert("default");
    factory.wait_for_cache_sync(Duration::from_secs(30)).await?;
    let lister = maps.lister();
    println!("{} more in default", lister.namespace("default").len());

    namespaces.remove("default");
    maps.wait_synced().await?;
    println!("{} without it", lister.len());
    handle.drain().await;
    for health in factory.health() {
        println!("{}: {}", health.name, health.activity);
    }
    factory.shutdown().await;
    Ok(())
}

fn within<K>(factory: &InformerFactory, namespaces: &NamespaceSet) -> SharedInformer<K>
where
    K: Form + kube_core::Resource<DynamicType = ()>,
{
    factory.informer_within(Endpoint::of::<K>(), namespaces, Selection::default())
}
