//! Random histories: what a watch saw, replayed, is what a list shows.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::rules::raw::*;

#[derive(Clone, Debug)]
enum Step {
    Create {
        name: usize,
        label: u8,
    },
    Label {
        name: usize,
        label: u8,
    },
    Spec {
        name: usize,
        replicas: u8,
    },
    Status {
        name: usize,
        value: u8,
    },
    Hold {
        name: usize,
    },
    Release {
        name: usize,
    },
    Delete {
        name: usize,
    },
    /// A watch starts here, from the newest version (true) or with initial events.
    Watch {
        from_version: bool,
    },
    Other,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0_usize..4;
    let step = prop_oneof![
        3 => (name.clone(), 0_u8..2).prop_map(|(name, label)| Step::Create { name, label }),
        3 => (name.clone(), 0_u8..2).prop_map(|(name, label)| Step::Label { name, label }),
        3 => (name.clone(), 0_u8..3).prop_map(|(name, replicas)| Step::Spec { name, replicas }),
        2 => (name.clone(), 0_u8..3).prop_map(|(name, value)| Step::Status { name, value }),
        1 => name.clone().prop_map(|name| Step::Hold { name }),
        1 => name.clone().prop_map(|name| Step::Release { name }),
        2 => name.prop_map(|name| Step::Delete { name }),
        1 => any::<bool>().prop_map(|from_version| Step::Watch { from_version }),
        1 => Just(Step::Other),
    ];
    proptest::collection::vec(step, 1..40)
}

/// A watch and what was there when it began.
struct Watcher {
    frames: Frames,
    known: BTreeMap<String, Value>,
    cursor: u64,
}

const SELECTOR: &str = "labelSelector=app%3D1";

async fn selected(server: &reeve_apiserver::ApiServer) -> (u64, BTreeMap<String, Value>) {
    let list = get(server, &format!("{FOOS}?{SELECTOR}")).await.expect_ok();
    let items = list["items"].as_array().unwrap().iter();
    let objects = items
        .map(|item| {
            (
                item["metadata"]["name"].as_str().unwrap().to_owned(),
                item.clone(),
            )
        })
        .collect();
    (version(&list), objects)
}

async fn play(steps: Vec<Step>) {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    let mut watchers = Vec::new();
    let mut generations: BTreeMap<String, (Value, i64)> = BTreeMap::new();
    let name = |name: usize| ["a", "b", "c", "d"][name];
    for step in steps {
        let path = |at: usize| format!("{FOOS}/{}", name(at));
        match step {
            Step::Create { name: at, label } => {
                let mut body = foo(name(at));
                body["metadata"]["labels"] = json!({"app": label.to_string()});
                post(&server, FOOS, &body).await;
            }
            Step::Label { name, label } => {
                let patch = json!({"metadata": {"labels": {"app": label.to_string()}}});
                merge(&server, &path(name), &patch).await;
            }
            Step::Spec { name, replicas } => {
                merge(
                    &server,
                    &path(name),
                    &json!({"spec": {"replicas": replicas}}),
                )
                .await;
            }
            Step::Status { name, value } => {
                let patch = json!({"status": {"value": value}});
                merge(&server, &format!("{}/status", path(name)), &patch).await;
            }
            Step::Hold { name } => {
                let patch = json!({"metadata": {"finalizers": ["example.com/hold"]}});
                merge(&server, &path(name), &patch).await;
            }
            Step::Release { name } => {
                merge(
                    &server,
                    &path(name),
                    &json!({"metadata": {"finalizers": null}}),
                )
                .await;
            }
            Step::Delete { name } => {
                delete(&server, &path(name), &Value::Null).await;
            }
            Step::Watch { from_version } => {
                let (cursor, known) = selected(&server).await;
                let (path, known) = if from_version {
                    (
                        format!("{FOOS}?watch=1&{SELECTOR}&resourceVersion={cursor}"),
                        known,
                    )
                } else {
                    (format!("{FOOS}?watch=1&{SELECTOR}"), BTreeMap::new())
                };
                let frames = watch(&server, &path).await;
                watchers.push(Watcher {
                    frames,
                    known,
                    cursor: if from_version { cursor } else { 0 },
                });
            }
            Step::Other => {
                post(&server, MAPS, &json!({"metadata": {"generateName": "x-"}}))
                    .await
                    .expect_ok();
            }
        }
        // Generation follows the spec, and the request for deletion.
        for item in get(&server, FOOS).await.expect_ok()["items"]
            .as_array()
            .unwrap()
        {
            let metadata = &item["metadata"];
            let relevant = json!([metadata["uid"], item["spec"], metadata["deletionTimestamp"]]);
            let now = metadata["generation"].as_i64().unwrap();
            let uid = metadata["uid"].as_str().unwrap().to_owned();
            match generations.insert(uid, (relevant.clone(), now)) {
                None => assert_eq!(now, 1),
                Some((before, then)) => {
                    let expected = if before == relevant { then } else { then + 1 };
                    assert_eq!(now, expected, "{item}");
                }
            }
        }
    }
    // A last event that every watcher sees.
    let mut end = foo("z-end");
    end["metadata"]["labels"] = json!({"app": "1"});
    post(&server, FOOS, &end).await.expect_ok();
    let (_, wanted) = selected(&server).await;
    for mut watcher in watchers {
        let mut initial = watcher.cursor == 0;
        loop {
            let event = watcher.frames.next().await.unwrap();
            let object = event["object"].clone();
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let at = version(&object);
            // Initial events come in the order of names; what follows in the order of versions.
            if initial && event["type"] != "ADDED" {
                initial = false;
            }
            if !initial {
                assert!(
                    at > watcher.cursor || watcher.known.values().any(|known| version(known) >= at)
                );
            }
            watcher.cursor = watcher.cursor.max(at);
            let known = watcher.known.contains_key(&name);
            match event["type"].as_str().unwrap() {
                "ADDED" => assert!(!known, "{name} was there already"),
                "MODIFIED" => assert!(known, "{name} was not there"),
                "DELETED" => {
                    assert!(known, "{name} was not there");
                    watcher.known.remove(&name);
                    continue;
                }
                other => panic!("{other}"),
            }
            watcher.known.insert(name.clone(), object);
            if name == "z-end" {
                break;
            }
        }
        assert_eq!(watcher.known, wanted);
    }
}

/// `default` cases, or as many as `PROPTEST_CASES` says.
fn cases(default: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}

proptest! {
    #![proptest_config(cases(48))]
    #[test]
    fn a_replayed_watch_is_the_list_and_generation_counts_what_it_should(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(steps));
    }
}
