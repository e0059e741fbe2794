//! The examples run and end by themselves. The guide shows the code that runs here.

#[path = "../../examples/cache_options.rs"]
#[allow(dead_code, reason = "the test runs `report`, not `main`")]
mod cache_options;
#[path = "../../examples/dynamic_kind.rs"]
mod dynamic_kind;
#[path = "../../examples/external_source.rs"]
mod external_source;
#[path = "../../examples/multi_queue.rs"]
mod multi_queue;
#[path = "../../examples/write_a_controller.rs"]
#[allow(dead_code, reason = "its main starts a log and ends the process")]
mod write_a_controller;

#[tokio::test]
async fn the_requests_of_cache_options_are_those_of_the_record() {
    let report = cache_options::report().await.unwrap();
    assert_eq!(
        report.trim_start(),
        include_str!("../../testdata/cache_options.txt")
    );
}

#[test]
fn dynamic_kind_ends_without_an_error() {
    dynamic_kind::main().unwrap();
}

#[test]
fn external_source_ends_without_an_error() {
    external_source::main().unwrap();
}

#[test]
fn multi_queue_ends_without_an_error() {
    multi_queue::main().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_a_controller_ends_without_an_error() {
    write_a_controller::run().await.unwrap();
}

#[test]
fn the_guide_shows_a_controller_in_a_hundred_lines() {
    let code = include_str!("../../examples/write_a_controller.rs");
    assert!(code.lines().count() <= 105);
    let guide = include_str!("../../guide/controller.md");
    assert!(
        guide.contains(&format!("```rust\n{code}```")),
        "controller/guide/controller.md does not have the exact text of controller/examples/write_a_controller.rs"
    );
}
