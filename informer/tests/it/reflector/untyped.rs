//! Objects that are read untyped, or as metadata only.

use super::*;

#[tokio::test(start_paused = true)]
async fn untyped_objects_and_metadata_only_are_informed_of_too() {
    use kube_core::ApiResource;
    use kube_core::metadata::PartialObjectMeta;

    // Items of a built-in kind's list have no type of their own.
    let item = r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5"},"data":{"k":"v"}}"#;
    let script = Script::new([no_streaming(), list("10", &[item.to_owned()])]);
    let resource = ApiResource::erase::<ConfigMap>(&());
    let endpoint = Endpoint::for_type::<DynamicObject>(&resource);
    let informer = SharedInformer::<DynamicObject>::builder_for(script.client(), endpoint)
        .clock(clock())
        .build();
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run(CancellationToken::new()).await }
    });
    informer.wait_synced().await.unwrap();
    let object = informer
        .lister()
        .get(&ObjectKey::namespaced("n", "a"))
        .unwrap();
    assert_eq!(object.types.as_ref().unwrap().kind, "ConfigMap");
    assert_eq!(object.data["data"]["k"], "v");
    assert_eq!(object.dynamic().unwrap().types, object.types);
    running.abort();

    let script = Script::new([no_streaming(), list("10", &[item.to_owned()])]);
    let informer = SharedInformer::<PartialObjectMeta<ConfigMap>>::builder(script.client())
        .clock(clock())
        .build();
    assert!(informer.endpoint().is_metadata_only());
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run(CancellationToken::new()).await }
    });
    informer.wait_synced().await.unwrap();
    assert_eq!(informer.lister().len(), 1);
    running.abort();
}
