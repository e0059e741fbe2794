//! Decodes a Pod as its type, from protobuf and from the same object in JSON by serde_json: `cargo bench -p reeve-wire`.
//!
//! An argument, `protobuf`, `json` or `copy`, measures that alone, for `perf stat`.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use reeve_wire::{Deserializer, Envelope, Step, Trim, to_vec};
use serde::Deserialize;
use serde_json::Value;

const POD: &str = include_str!("../../informer/testdata/pod.json");

const ROUNDS: u32 = 100_000;

fn main() {
    let only = std::env::args()
        .nth(1)
        .filter(|argument| !argument.starts_with('-'));
    let mut value: Value = serde_json::from_str(POD).expect("a Pod");
    value["apiVersion"] = "v1".into();
    value["kind"] = "Pod".into();
    let mut bare = value.clone();
    let metadata = bare["metadata"].as_object_mut().expect("metadata");
    metadata.remove("managedFields");
    let (json, body) = (bare.to_string(), to_vec(&value).expect("a Pod"));
    let object = Envelope::parse(&body).expect("a body");
    let message = object.message().expect("a known kind");
    let mut trim = Trim::new(message);
    assert!(trim.skip([Step::Field("metadata"), Step::Field("managedFields")]));
    let deserializer = || {
        Deserializer::new(message, object.object)
            .with_trim(&trim)
            .with_type("v1", "Pod")
    };
    let read = || Pod::deserialize(&mut deserializer()).expect("a Pod");
    assert_eq!(read(), serde_json::from_str::<Pod>(&json).expect("a Pod"));
    println!(
        "{} bytes of protobuf, {} of JSON without managedFields",
        body.len(),
        json.len()
    );
    let measure = |name: &str, round: &dyn Fn()| {
        if only.as_deref().is_some_and(|only| only != name) {
            return;
        }
        let began = Instant::now();
        for _ in 0..ROUNDS {
            round();
        }
        println!("{name}: {:?} each", began.elapsed() / ROUNDS);
    };
    measure("protobuf", &|| drop(black_box(read())));
    measure("json", &|| {
        drop(black_box(serde_json::from_str::<Pod>(black_box(&json))))
    });
    measure("copy", &|| {
        drop(black_box(trim.copy(black_box(object.object))))
    });
}
