//! The factory: shared informers, their lifetime, and their configuration.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reeve_informer::{
    Activity, Compact, Endpoint, EntryType, Event, Form, HandlerHandle, HandlerOptions,
    InformerFactory, NamespaceSet, ObjectKey, ReflectorOptions, Scope, Selection, SharedInformer,
    Stored, UpdateReason,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::{Received, clock, contents, millis, seconds};
use crate::script::*;

/// A server with one object for every request.
fn one() -> Script {
    Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[object("a", "1")]),
        "stream" => no_streaming(),
        _ => watch([]),
    })
}

fn labelled(labels: &str) -> Selection {
    Selection {
        labels: labels.into(),
        ..Selection::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_factory_makes_one_informer_for_each_kind_scope_and_selector() {
    let script = Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[object("a", "1")]),
        "stream" => no_streaming(),
        _ => watch([]),
    });
    let factory = InformerFactory::new(script.client(), clock());
    let all = factory.informer::<ConfigMap>(Selection::default());
    let same = factory.informer::<ConfigMap>(Selection::default());
    let other = factory.informer::<ConfigMap>(Selection {
        labels: "a=b".into(),
        ..Selection::default()
    });
    assert!(Arc::ptr_eq(all.indexer(), same.indexer()));
    assert!(!Arc::ptr_eq(all.indexer(), other.indexer()));
    factory.start();
    factory.start();
    factory
        .wait_for_cache_sync(Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!(script.count("list"), 2, "starting twice is starting once");
    let late = factory.informer::<ConfigMap>(Selection {
        scope: Scope::namespace("n"),
        ..Selection::default()
    });
    assert!(!late.has_synced());
    factory.start();
    late.wait_synced().await.unwrap();
    assert_eq!(script.count("list"), 3);
    factory.shutdown().await;
    assert!(all.is_stopped() && other.is_stopped() && late.is_stopped());
    millis(1).await;
    assert_eq!(script.open(), 0);
    let after = factory.informer::<ConfigMap>(Selection {
        labels: "c=d".into(),
        ..Selection::default()
    });
    factory.start();
    millis(100).await;
    assert!(!after.has_synced());
}

#[tokio::test(start_paused = true)]
async fn a_store_of_erased_entries_is_shared_by_their_type_and_casts_them_back() {
    let script = one();
    let factory = InformerFactory::new(script.client(), clock());
    let endpoint = Endpoint::of::<ConfigMap>();
    let erased = |entries: EntryType<dyn Stored>| {
        let selection = Selection::default();
        factory.informer_of(entries, endpoint.clone(), selection, None, |builder| {
            builder.transform(|object| {
                if let Some(metadata) = object.metadata_mut() {
                    metadata.labels = None;
                }
            })
        })
    };
    let maps = erased(EntryType::erased::<ConfigMap>());
    let same = erased(EntryType::erased::<ConfigMap>());
    let compact = erased(EntryType::erased::<Compact<ConfigMap>>());
    let typed = factory.informer::<ConfigMap>(Selection::default());
    assert!(Arc::ptr_eq(maps.indexer(), same.indexer()));
    assert!(!Arc::ptr_eq(maps.indexer(), compact.indexer()));
    factory.start();
    factory
        .wait_for_cache_sync(Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!(script.count("list"), 3, "one for each type of entries");
    let key = ObjectKey::namespaced("n", "a");
    let (entry, known) = (maps.lister().get(&key), typed.lister().get(&key));
    let (entry, known) = (entry.unwrap(), known.unwrap());
    assert_eq!((entry.key(), entry.resource_version()), (key.clone(), "1"));
    let entry = entry.cast::<Compact<ConfigMap>>().unwrap_err();
    assert_eq!(*entry.cast::<ConfigMap>().unwrap(), *known);
    let compact = compact.lister().get(&key).unwrap();
    let compact = compact.cast::<Compact<ConfigMap>>().unwrap();
    assert_eq!(*compact.typed().unwrap(), *known);
    assert_eq!(
        maps.indexer().bytes().entries,
        typed.indexer().bytes().entries
    );
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_factory_names_the_informers_that_did_not_sync_and_the_cause() {
    let script =
        Script::default().otherwise(|asked| match (asked.verb(), asked.get("labelSelector")) {
            ("list", "a=b") => status(403, "Forbidden"),
            ("list", _) => list("10", &[]),
            ("stream", _) => no_streaming(),
            _ => watch([]),
        });
    let factory = InformerFactory::new(script.client(), clock());
    let _good = factory.informer::<ConfigMap>(Selection::default());
    let _bad = factory.informer::<ConfigMap>(Selection {
        labels: "a=b".into(),
        ..Selection::default()
    });
    factory.start();
    let error = factory
        .wait_for_cache_sync(Duration::from_secs(30))
        .await
        .unwrap_err();
    assert_eq!(error.waiting.len(), 1);
    assert!(
        error
            .to_string()
            .contains("configmaps with labels a=b: failing")
            && error.to_string().contains("Forbidden"),
        "{error}"
    );
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_unused_informer_goes_on_for_the_linger_and_then_stops() {
    let script = one();
    let factory = InformerFactory::new(script.client(), clock());
    factory.start();
    let first = factory.informer::<ConfigMap>(Selection::default());
    let other = factory.informer::<ConfigMap>(labelled("a=b"));
    first.wait_synced().await.unwrap();
    let store = Arc::clone(first.indexer());
    drop(first.clone());
    seconds(60).await;
    assert!(!first.is_stopped(), "one user is enough");
    drop(first);
    seconds(29).await;
    let again = factory.informer::<ConfigMap>(Selection::default());
    assert!(Arc::ptr_eq(&store, again.indexer()), "taken over in time");
    assert_eq!(
        (contents(&again).as_str(), script.count("list")),
        ("a@1", 2)
    );
    seconds(60).await;
    assert_eq!(factory.health().len(), 2);
    drop(again);
    seconds(31).await;
    assert_eq!(factory.health().len(), 1, "the other is in use");
    assert_eq!(script.open(), 1, "its watch is over");
    let next = factory.informer::<ConfigMap>(Selection::default());
    assert!(!Arc::ptr_eq(&store, next.indexer()));
    next.wait_synced().await.unwrap();
    assert!(!other.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn a_lister_or_a_handler_keeps_an_informer_in_use() {
    let script = one();
    let factory = InformerFactory::new(script.client(), clock());
    factory.start();
    let received = Received::default();
    let handle = factory
        .informer::<ConfigMap>(Selection::default())
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    let lister = factory.informer::<ConfigMap>(labelled("a=b")).lister();
    let stream = factory
        .informer::<ConfigMap>(labelled("c=d"))
        .stream(HandlerOptions::new())
        .unwrap();
    seconds(60).await;
    assert_eq!(
        (received.take(), lister.len()),
        (vec!["+a@1*".to_owned()], 1)
    );
    assert_eq!(factory.health().len(), 3);
    drop((lister, stream));
    seconds(31).await;
    assert_eq!(factory.health().len(), 1);
    handle.unregister();
    seconds(31).await;
    assert_eq!((factory.health().len(), script.open()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_linger_an_informer_ends_with_its_last_user() {
    let script = one();
    let factory = InformerFactory::builder(script.client())
        .clock(clock())
        .linger(Duration::ZERO)
        .build();
    factory.start();
    let informer = factory.informer::<ConfigMap>(Selection::default());
    informer.wait_synced().await.unwrap();
    drop(informer);
    millis(1).await;
    assert_eq!((factory.health().len(), script.open()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_informer_can_be_stopped_and_the_next_request_makes_a_new_one() {
    let script = one();
    let factory = InformerFactory::new(script.client(), clock());
    let stays = factory.informer::<ConfigMap>(labelled("a=b"));
    let ends = factory.informer::<ConfigMap>(Selection::default());
    let user = ends.clone();
    factory.start();
    let deadline = Duration::from_secs(5);
    factory.wait_for_cache_sync(deadline).await.unwrap();
    factory.stop(&ends).await;
    assert!(user.is_stopped(), "for all of its users");
    assert!(user.add_handler(|_| {}, HandlerOptions::new()).is_err());
    factory.stop(&ends).await;
    millis(1).await;
    assert!(!stays.is_stopped());
    assert_eq!((factory.health().len(), script.open()), (1, 1));
    let next = factory.informer::<ConfigMap>(Selection::default());
    next.wait_synced().await.unwrap();
    assert!(!Arc::ptr_eq(next.indexer(), ends.indexer()));
    // The end of a former informer does not affect its successor.
    drop((ends, user));
    seconds(60).await;
    assert!(!next.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_was_stopped_before_the_start_does_not_start() {
    let script = one();
    let factory = InformerFactory::new(script.client(), clock());
    let informer = factory.informer::<ConfigMap>(Selection::default());
    factory.stop(&informer).await;
    factory.start();
    seconds(1).await;
    assert_eq!(script.asked().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_factory_stops_its_informers() {
    let script = one();
    let factory = InformerFactory::new(script.client(), clock());
    let informer = factory.informer::<ConfigMap>(Selection::default());
    factory.start();
    informer.wait_synced().await.unwrap();
    drop(factory);
    millis(1).await;
    assert!(informer.is_stopped());
    assert_eq!(script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_kind_and_form_has_its_own_options() {
    let script = Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[object("a", "1")]),
        _ => watch([]),
    });
    let often = Duration::from_secs(10);
    let factory = InformerFactory::builder(script.client())
        .clock(clock())
        .reflector(ReflectorOptions::new().streaming(false))
        .resync(Duration::from_secs(3600))
        .configure::<ConfigMap>(move |builder| {
            builder
                .resync(often)
                .reflector(
                    ReflectorOptions::new()
                        .streaming(false)
                        .page_size(NonZeroU32::new(7)),
                )
                .transform(|map: &mut ConfigMap| map.data = None)
        })
        .build();
    factory.start();
    let options = HandlerOptions::new;
    let maps = factory.informer::<ConfigMap>(Selection::default());
    let (received, quiet) = (Received::default(), Received::default());
    let _handle = maps.add_handler(received.handler(), options()).unwrap();
    let _quiet = maps
        .add_handler(quiet.handler(), options().resync(Duration::ZERO))
        .unwrap();
    maps.wait_synced().await.unwrap();
    let compact = factory
        .informer_for::<Compact<ConfigMap>>(Endpoint::of::<ConfigMap>(), Selection::default());
    compact.wait_synced().await.unwrap();
    let limits: Vec<_> = script
        .asked()
        .iter()
        .filter(|asked| asked.verb() == "list")
        .map(|asked| asked.get("limit").to_owned())
        .collect();
    assert_eq!(
        limits,
        ["7", "500"],
        "what is of the typed form is of it alone"
    );
    let resyncs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&resyncs);
    let count = move |event| {
        if let Event::Updated { reason, .. } = event {
            assert_eq!(reason, UpdateReason::Resync);
            seen.fetch_add(1, Ordering::SeqCst);
        }
    };
    let _counted = compact.add_handler(count, options()).unwrap();
    seconds(35).await;
    assert_eq!(received.take(), ["+a@1*", "~a@1-1s", "~a@1-1s", "~a@1-1s"]);
    assert_eq!((quiet.take().len(), resyncs.load(Ordering::SeqCst)), (1, 0));
    seconds(3600).await;
    assert_eq!(
        resyncs.load(Ordering::SeqCst),
        1,
        "the period of the factory"
    );
}

#[tokio::test]
async fn namespaces_that_a_configuration_sets_are_not_kept() {
    let script = one();
    let red = || NamespaceSet::new(["red"]);
    let factory = InformerFactory::builder(script.client())
        .configure::<ConfigMap>(move |builder| builder.namespaces(red()))
        .build();
    let endpoint = Endpoint::of::<ConfigMap>;
    let scopes = |informer: &SharedInformer<ConfigMap>| -> Vec<_> {
        let watches = informer.health().watches;
        watches.into_iter().map(|watch| watch.scope).collect()
    };
    let all = factory.informer::<ConfigMap>(Selection::default());
    assert_eq!(scopes(&all), [Scope::Cluster]);
    let labelled =
        factory.informer_with::<ConfigMap>(endpoint(), labelled("a=b"), None, |builder| {
            builder.namespaces(red())
        });
    assert_eq!(scopes(&labelled), [Scope::Cluster]);
    let blue = NamespaceSet::new(["blue"]);
    let within = factory.informer_within::<ConfigMap>(endpoint(), &blue, Selection::default());
    assert_eq!(scopes(&within), [Scope::namespace("blue")]);
}

/// A server without streaming lists.
fn refusing() -> Script {
    Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[]),
        "stream" => no_streaming(),
        _ => watch([]),
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_detected_once_for_a_factory_and_group() {
    let script = refusing();
    let factory = InformerFactory::new(script.client(), clock());
    factory.start();
    let maps = factory.informer::<ConfigMap>(Selection::default());
    maps.wait_synced().await.unwrap();
    assert_eq!(script.count("stream"), 1);
    let secrets = factory.informer::<Secret>(Selection::default());
    let labelled = factory.informer::<ConfigMap>(labelled("app=web"));
    secrets.wait_synced().await.unwrap();
    labelled.wait_synced().await.unwrap();
    assert_eq!(script.count("stream"), 1);
    // Another server may stand behind another group.
    let deployments = factory.informer::<Deployment>(Selection::default());
    deployments.wait_synced().await.unwrap();
    assert_eq!(script.count("stream"), 2);
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn silence_before_the_end_of_a_streaming_list_counts_for_that_watch_only() {
    // It ignores the unknown parameters of streaming lists.
    let script = Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[]),
        _ => ending([wait(60), error(410, "Expired")]),
    });
    let factory = InformerFactory::new(script.client(), clock());
    factory.start();
    for number in 1..=2 {
        let began = Instant::now();
        let selection = labelled(&format!("number={number}"));
        let informer = factory.informer::<ConfigMap>(selection);
        informer.wait_synced().await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 10);
        // It lists again each minute, and requests no stream.
        seconds(600).await;
        assert_eq!(script.count("stream"), number);
    }
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn silence_of_a_server_that_offers_streaming_lists_leads_no_other_informer_to_pages() {
    let began = Instant::now();
    let script = Script::default().otherwise(move |asked| {
        let busy = (60..68).contains(&began.elapsed().as_secs());
        match asked.verb() {
            "stream" if busy => watch([]),
            "stream" => ending([initial_end("10"), wait(60), error(410, "Expired")]),
            verb => panic!("{verb}"),
        }
    });
    let factory = InformerFactory::new(script.client(), clock());
    factory.start();
    let maps = factory.informer::<ConfigMap>(Selection::default());
    maps.wait_synced().await.unwrap();
    // It lists again while the server is busy.
    seconds(65).await;
    assert_eq!(script.count("stream"), 2);
    let secrets = factory.informer::<Secret>(Selection::default());
    seconds(60).await;
    assert!(secrets.has_synced());
    assert!(maps.health().is_ready());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_whose_request_is_refused_takes_streaming_lists_from_no_other() {
    for (code, in_pages_too) in [(400, true), (405, false), (406, false), (415, false)] {
        let script = Script::default().otherwise(move |asked| {
            match (asked.get("labelSelector"), asked.verb()) {
                ("bad", "list") if !in_pages_too => list("10", &[]),
                ("bad", _) => status(code, ""),
                (_, "stream") => ending([
                    added("a", "1"),
                    initial_end("10"),
                    wait(60),
                    error(410, "Expired"),
                ]),
                _ => list("10", &[object("a", "1")]),
            }
        });
        let factory = InformerFactory::new(script.client(), clock());
        let _good = factory.informer::<ConfigMap>(Selection::default());
        factory.start();
        seconds(30).await;
        let _bad = factory.informer::<ConfigMap>(labelled("bad"));
        seconds(60).await;
        let good: Vec<_> = script
            .asked()
            .into_iter()
            .filter(|asked| asked.get("labelSelector").is_empty())
            .map(|asked| asked.short())
            .collect();
        assert_eq!(good, ["stream", "stream @10"], "{code}");
        assert!(script.count("list") > 0, "{code}");
        factory.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_request_whose_pages_can_be_read_means_that_the_server_offers_no_streaming_lists() {
    let script = Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[object("a", "1")]),
        "stream" => status(400, "BadRequest"),
        _ => watch([]),
    });
    let factory = InformerFactory::new(script.client(), clock());
    factory.start();
    for selection in [Selection::default(), labelled("a=b")] {
        let informer = factory.informer::<ConfigMap>(selection);
        informer.wait_synced().await.unwrap();
        factory.start();
    }
    assert_eq!((script.count("stream"), script.count("list")), (1, 2));
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_detected_once_for_a_set_of_namespaces() {
    let script = refusing();
    let namespaces = NamespaceSet::new(["one", "two"]);
    let informer = crate::harness::builder(&script)
        .namespaces(namespaces.clone())
        .build();
    let running = crate::harness::run(informer);
    running.informer.wait_synced().await.unwrap();
    assert_eq!(script.count("stream"), 2, "both at once");
    namespaces.insert("three");
    millis(1).await;
    running.informer.wait_synced().await.unwrap();
    assert_eq!(script.count("stream"), 2);
    running.stop().await;
}

/// Waits for an informer that will never run end.
async fn ends(informer: &SharedInformer<ConfigMap>, handle: &HandlerHandle<ConfigMap>) {
    let soon = Duration::from_millis(1);
    let waited = tokio::time::timeout(soon, informer.wait_synced()).await;
    assert!(matches!(waited, Ok(Err(_))), "{waited:?}");
    let waited = tokio::time::timeout(soon, handle.wait_synced()).await;
    assert!(matches!(waited, Ok(Err(_))), "{waited:?}");
    let late = informer.add_handler(|_: Event<ConfigMap>| {}, HandlerOptions::new());
    assert!(late.is_err());
    assert_eq!(informer.health().activity, Activity::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_an_informer_that_never_runs_ends() {
    let asked = || {
        let factory = InformerFactory::new(one().client(), clock());
        let informer = factory.informer::<ConfigMap>(Selection::default());
        let handle = informer.add_handler(|_: Event<ConfigMap>| {}, HandlerOptions::new());
        let stream = informer.stream(HandlerOptions::new()).unwrap();
        (factory, informer, handle.unwrap(), stream)
    };
    let (factory, informer, handle, mut stream) = asked();
    factory.stop(&informer).await;
    ends(&informer, &handle).await;
    assert!(stream.next().await.is_none());

    let (factory, informer, handle, _stream) = asked();
    factory.shutdown().await;
    ends(&informer, &handle).await;
    let late = factory.informer::<ConfigMap>(Selection::default());
    assert!(late.is_stopped(), "requested after the end");

    let (factory, informer, handle, _stream) = asked();
    factory.start();
    // Its task was not polled.
    factory.abort();
    ends(&informer, &handle).await;

    let (factory, informer, handle, _stream) = asked();
    factory.start();
    // Its task is dropped before it was polled.
    drop(factory);
    tokio::task::yield_now().await;
    ends(&informer, &handle).await;

    let informer = crate::harness::builder(&one()).build();
    let handle = informer
        .add_handler(|_: Event<ConfigMap>| {}, HandlerOptions::new())
        .unwrap();
    drop(informer.run(CancellationToken::new()));
    ends(&informer, &handle).await;

    let none = NamespaceSet::new(Vec::<String>::new());
    let informer = crate::harness::builder(&one()).namespaces(none).build();
    drop(informer.run(CancellationToken::new()));
    assert!(!informer.has_synced() && informer.wait_synced().await.is_err());

    let (factory, informer, handle, mut stream) = asked();
    drop((factory, informer));
    assert!(handle.wait_synced().await.is_err(), "it is gone");
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_configuration_may_request_other_informers_of_the_factory() {
    let factory = InformerFactory::new(one().client(), clock());
    let asks = factory.clone();
    let endpoint = Endpoint::of::<ConfigMap>();
    let informer = factory.informer_with::<ConfigMap>(
        endpoint.clone(),
        Selection::default(),
        None,
        move |builder| {
            let others = asks.informer::<ConfigMap>(labelled("a=b")).lister();
            // Even for itself: then that one is used.
            let itself = asks.informer::<ConfigMap>(Selection::default());
            assert!(!itself.is_stopped());
            builder.transform(move |_| drop(others.list()))
        },
    );
    factory.start();
    factory
        .wait_for_cache_sync(Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!(contents(&informer), "a@1");
    assert_eq!(factory.health().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_shutdown_of_a_factory_waits_until_nothing_runs() {
    let script = one();
    let factory = InformerFactory::new(script.client(), clock());
    let informer = factory.informer::<ConfigMap>(Selection::default());
    factory.start();
    informer.wait_synced().await.unwrap();
    let (mut first, mut second) = (pin!(factory.shutdown()), pin!(factory.shutdown()));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    second.await;
    assert!(informer.is_stopped());
    first.await;
}

#[test]
fn a_shutdown_waits_for_tasks_of_informers_that_are_forgotten() {
    let script = one();
    crate::harness::within_a_minute(3, async {
        let factory = InformerFactory::new(script.client(), clock());
        let informer = factory.informer::<ConfigMap>(Selection::default());
        let (entered, mut was_entered) = tokio::sync::mpsc::unbounded_channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let left = parking_lot::Mutex::new(left);
        let blocks = move |_: Event<ConfigMap>| {
            let _ = entered.send(());
            let _ = left.lock().recv();
        };
        let _handle = informer.add_handler(blocks, HandlerOptions::new());
        factory.start();
        was_entered.recv().await.unwrap();
        assert!(factory.stop(&informer).now_or_never().is_none());
        let mut shutdown = pin!(factory.shutdown());
        for _ in 0..100 {
            assert!(
                shutdown.as_mut().now_or_never().is_none(),
                "its callback still runs"
            );
            tokio::task::yield_now().await;
        }
        drop(leave);
        shutdown.await;
    });
}
