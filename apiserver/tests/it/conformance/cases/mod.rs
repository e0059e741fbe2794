//! The cases, one file for each section of rules.

pub mod kinds;

mod accepted;
mod access;
mod answers;
mod builtin;
mod connections;
mod conversions;
mod definitions;
mod delete;
mod discovery;
mod errors;
mod history;
mod lists;
mod ownership;
mod patches;
mod policies;
mod rights;
mod select;
mod validation;
mod watches;
mod webhooks;
mod writes;

use serde_json::{Value, json};

use crate::conformance::runner::Entry;

/// Turns any number of `["RULE-1 RULE-2"] "the rule in words" => |t| { … }` into `pub fn cases() -> Vec<Entry>`.
macro_rules! cases {
    ($section:literal; $([$rules:literal] $name:literal => |$case:ident| $body:block)*) => {
        pub fn cases() -> Vec<crate::conformance::runner::Entry> {
            vec![$(crate::conformance::runner::Entry {
                section: $section,
                rules: $rules,
                name: $name,
                run: |$case| Box::pin(async move $body),
            }),*]
        }
    };
}
pub(crate) use cases;

pub fn all() -> Vec<Entry> {
    [
        lists::cases(),
        watches::cases(),
        webhooks::cases(),
        answers::cases(),
        connections::cases(),
        policies::cases(),
        writes::cases(),
        patches::cases(),
        ownership::cases(),
        validation::cases(),
        delete::cases(),
        select::cases(),
        definitions::cases(),
        conversions::cases(),
        discovery::cases(),
        accepted::cases(),
        access::cases(),
        rights::cases(),
        errors::cases(),
        builtin::cases(),
        history::cases(),
    ]
    .concat()
}

/// A ConfigMap.
pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

/// A ConfigMap with labels.
pub fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// A Widget of the shared kinds.
pub fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// A cluster-scoped Gadget of the shared kinds.
pub fn gadget(spec: Value) -> Value {
    json!({"apiVersion": "{group}/v1", "kind": "Gadget", "metadata": {"name": "{me}"}, "spec": spec})
}
