//! Objects and lines that cannot be read.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_in_a_list_is_quarantined_and_the_rest_syncs() {
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[object("a", "5"), broken("bad", "6"), object("c", "7")],
        ),
        watch([wait(10), modified("bad", "11")]),
    ]);
    let running = start(&script);
    running.handle.wait_synced().await.unwrap();
    assert_eq!(running.store(), "a@5 c@7");
    let health = running.informer.health();
    assert_eq!(health.quarantined_count, 1);
    assert_eq!(health.quarantined[0].key, ObjectKey::namespaced("n", "bad"));
    assert_eq!(health.quarantined[0].resource_version.as_deref(), Some("6"));
    assert_eq!(
        health.quarantined[0].outline,
        "{apiVersion: string, data: string, kind: string, metadata: {name: string, namespace: string, resourceVersion: string, uid: string}}"
    );
    assert!(
        !health.quarantined[0].error.contains("secret"),
        "{:?}",
        health.quarantined
    );
    assert!(
        health
            .trouble()
            .unwrap()
            .contains("1 object cannot be read")
    );
    seconds(11).await;
    assert_eq!(running.store(), "a@5 bad@11 c@7");
    assert_eq!(running.informer.health().quarantined_count, 0);
}

#[tokio::test(start_paused = true)]
async fn the_known_state_of_an_object_stays_when_its_new_state_cannot_be_read() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5"), object("b", "6")]),
        ending([
            event("MODIFIED", &broken("a", "11")),
            modified("b", "12"),
            wait(5),
            error(410, "Expired"),
        ]),
        list("20", &[broken("a", "11"), object("b", "12")]),
        watch([wait(12), event("DELETED", &broken("a", "21"))]),
    ]);
    let running = start(&script);
    seconds(15).await;
    assert_eq!(
        running.store(),
        "a@5 b@12",
        "neither the watch nor the list removes it"
    );
    assert_eq!(running.informer.health().quarantined_count, 1);
    seconds(12).await;
    assert_eq!(running.store(), "b@12");
    assert_eq!(running.informer.health().quarantined_count, 0);
    assert_eq!(
        running.received.take(),
        ["+a@5*", "+b@6*", "~b@6-12", "-a@5!"]
    );
    assert_eq!(
        script.log()[2..],
        ["watch @10", "list limit=500", "watch @20"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_in_a_streaming_list_is_quarantined() {
    let script = Script::new([watch([
        added("a", "5"),
        event("ADDED", &broken("b", "6")),
        event("ADDED", &broken("c", "6")),
        modified("c", "7"),
        initial_end("10"),
    ])]);
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    assert_eq!(running.store(), "a@5 c@7");
    assert_eq!(running.informer.health().quarantined_count, 1);
}

#[tokio::test(start_paused = true)]
async fn those_without_a_name_count_by_their_versions_in_streams_and_pages_alike() {
    let nameless = |version: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"resourceVersion":"{version}"}}}}"#
        )
    };
    let versions = ["5", "6", "6", "7"];
    let streamed = versions.map(|version| event("ADDED", &nameless(version)));
    for script in [
        Script::new([watch(streamed.into_iter().chain([initial_end("10")]))]),
        Script::new([
            no_streaming(),
            list("10", &versions.map(nameless)),
            watch([]),
        ]),
    ] {
        let running = start(&script);
        running.informer.wait_synced().await.unwrap();
        let health = running.informer.health();
        assert_eq!(health.quarantined_count, 3, "{:?}", script.log());
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_held_in_the_version_listed_is_not_read_again() {
    let expired = || ending([wait(5), error(410, "Expired")]);
    // A server would not send it with the same version. It cannot be read, which shows that it is not read.
    let pages = Script::new([
        no_streaming(),
        list("10", &[object("a", "5"), object("b", "6")]),
        expired(),
        list("20", &[broken("a", "5"), broken("b", "16")]),
        watch([]),
    ]);
    let streams = Script::new([
        ending([
            added("a", "5"),
            added("b", "6"),
            initial_end("10"),
            wait(5),
            error(410, "Expired"),
        ]),
        watch([
            event("ADDED", &broken("a", "5")),
            event("ADDED", &broken("b", "16")),
            initial_end("20"),
        ]),
    ]);
    for script in [pages, streams] {
        let running = start(&script);
        running.informer.wait_synced().await.unwrap();
        seconds(10).await;
        let version = running.informer.last_sync_resource_version();
        assert_eq!(version.to_string(), "20", "all was listed again");
        assert_eq!(running.store(), "a@5 b@6");
        let quarantined = running.informer.health().quarantined;
        let keys: Vec<_> = quarantined
            .iter()
            .map(|object| object.key.clone())
            .collect();
        assert_eq!(keys, [ObjectKey::namespaced("n", "b")]);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_not_an_event_is_fetched_again_and_the_third_leads_to_a_list() {
    let garbage = || ending([Bit::Line("{\"type\":\"ADDED\",\"obj".into())]);
    let script = Script::new([
        no_streaming(),
        list("10", &[]),
        garbage(),
        garbage(),
        garbage(),
        list("20", &[object("a", "15")]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(30).await;
    assert_eq!((script.count("watch"), script.count("list")), (4, 2));
    assert_eq!(running.store(), "a@15");
}

#[tokio::test(start_paused = true)]
async fn an_old_deletion_that_cannot_be_read_deletes_nothing() {
    let unreadable = |name, version, uid: &str| {
        let object = broken(name, version).replace(&format!("uid-{name}"), uid);
        event("DELETED", &object)
    };
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[object("a", "5"), object("b", "6"), object("c", "7")],
        ),
        watch([
            // A former state, and a former object of that name.
            unreadable("a", "4", "uid-a"),
            unreadable("b", "5", "former"),
            // Some servers send the last version and not that of the deletion.
            unreadable("c", "7", "uid-c"),
        ]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.store(), "a@5 b@6");
    assert_eq!(running.informer.health().quarantined_count, 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_state_that_cannot_be_read_is_dropped_as_one_that_can() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        watch([
            modified("a", "12"),
            event("MODIFIED", &broken("a", "11")),
            event("ADDED", &broken("b", "12")),
            event("MODIFIED", &broken("c", "13")),
        ]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.store(), "a@12");
    let health = running.informer.health();
    let quarantined = health.quarantined.iter().map(|one| one.key.to_string());
    assert_eq!(quarantined.collect::<Vec<_>>(), ["n/c"]);
    assert_eq!(health.watches[0].stale, 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_an_unreadable_object_deletes_the_former_one_of_its_name() {
    let recreated = broken("a", "11").replace("uid-a", "other");
    let gone = broken("a", "12").replace("uid-a", "other");
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        watch([event("ADDED", &recreated), event("DELETED", &gone)]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.store(), "");
    assert_eq!(running.informer.health().quarantined_count, 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_can_be_read_deletes_the_former_object_of_its_name_too() {
    let recreated = broken("a", "11").replace("uid-a", "other");
    let gone = object("a", "21").replace("uid-a", "other");
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        ending([error(410, "Expired")]),
        list("20", &[recreated]),
        watch([event("DELETED", &gone)]),
    ]);
    let running = start(&script);
    seconds(30).await;
    assert_eq!(running.store(), "");
    assert_eq!(running.received.take(), ["+a@5*", "-a@5!"]);
    assert_eq!(running.informer.health().quarantined_count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_table_in_a_watch_is_set_aside_and_the_watch_goes_on() {
    let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"11"},"columnDefinitions":[],"rows":[{"cells":["a"]}]}"#;
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        watch([event("MODIFIED", table), modified("a", "12")]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.store(), "a@12");
    assert_eq!(running.informer.health().quarantined_count, 1);
    assert_eq!(script.log()[2..], ["watch @10"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_names_another_type_is_set_aside_in_the_forms_that_would_read_it() {
    async fn set_aside<S: Form>() {
        let secret = object("s", "6").replace("ConfigMap", "Secret");
        let other = object("c", "12").replace(r#""apiVersion":"v1""#, r#""apiVersion":"v2""#);
        let script = Script::new([
            no_streaming(),
            list("10", &[object("a", "5"), secret]),
            watch([event("ADDED", &other), added("b", "13")]),
        ]);
        let endpoint = Endpoint::of::<ConfigMap>();
        let informer = SharedInformer::<S>::builder_for(script.client(), endpoint)
            .clock(clock())
            .build();
        let running = tokio::spawn({
            let informer = informer.clone();
            async move { informer.run(CancellationToken::new()).await }
        });
        millis(10).await;
        let objects = informer.lister().list();
        let names: Vec<_> = objects.iter().map(|object| object.name()).collect();
        assert_eq!(names, ["a", "b"]);
        let quarantined = informer.health().quarantined;
        let errors: Vec<_> = quarantined.iter().map(|object| &object.error).collect();
        assert!(
            errors[0].contains("expected ConfigMap") && errors[1].contains("expected v1"),
            "{errors:?}"
        );
        running.abort();
    }
    set_aside::<DynamicObject>().await;
    set_aside::<Compact<ConfigMap>>().await;
}
