//! Decodes a Pod as its type, from protobuf and from the same object in JSON by serde_json, and copies its bytes without
//! `managedFields`: `cargo bench -p reeve-wire`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::Pod;
use reeve_wire::{Deserializer, Envelope, Step, Trim, to_vec};
use serde::Deserialize;
use serde_json::Value;

const POD: &str = include_str!("../../informer/testdata/pod.json");

fn pods(criterion: &mut Criterion) {
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
    let read = || deserializer().read::<Pod>().expect("a Pod");
    let by_serde = || Pod::deserialize(&mut deserializer()).expect("a Pod");
    assert_eq!(read(), serde_json::from_str::<Pod>(&json).expect("a Pod"));
    assert_eq!(by_serde(), read());
    let mut group = criterion.benchmark_group("pod");
    group.bench_function("protobuf", |bencher| bencher.iter(|| black_box(read())));
    let mut later = value.clone();
    later["metadata"]["resourceVersion"] = "123456789".into();
    later["spec"]["nodeName"] = "another-node".into();
    // Of another template: no text and no list has the same size.
    let mut unlike = value.clone();
    lengthen(&mut unlike);
    unlike["kind"] = "Pod".into();
    for (name, other) in [("a former state", later), ("another template", unlike)] {
        let other = to_vec(&other).expect("a Pod");
        let other = Envelope::parse(&other).expect("a body");
        group.bench_function(format!("protobuf over {name}"), |bencher| {
            let mut pod = read();
            let bodies = [&object, &other].map(|body| body.object);
            let mut turn = 0;
            bencher.iter(|| {
                turn = 1 - turn;
                let mut deserializer = Deserializer::new(message, bodies[turn])
                    .with_trim(&trim)
                    .with_type("v1", "Pod");
                deserializer.read_over(&mut pod).expect("a Pod");
            });
        });
    }
    group.bench_function("protobuf by serde", |bencher| {
        bencher.iter(|| black_box(by_serde()));
    });
    group.bench_function("json", |bencher| {
        bencher.iter(|| serde_json::from_str::<Pod>(black_box(&json)));
    });
    group.bench_function("copy", |bencher| {
        bencher.iter(|| trim.copy(black_box(object.object)));
    });
    group.finish();
}

/// Makes each text and each list longer. Times and quantities stay.
fn lengthen(value: &mut Value) {
    match value {
        Value::String(text) if !text.starts_with(|first: char| first.is_ascii_digit()) => {
            text.push_str("-of-another-template");
        }
        Value::Array(list) => {
            list.iter_mut().for_each(lengthen);
            list.extend(list.last().cloned());
        }
        Value::Object(members) => members.values_mut().for_each(lengthen),
        _ => {}
    }
}

criterion_group!(benches, pods);
criterion_main!(benches);
