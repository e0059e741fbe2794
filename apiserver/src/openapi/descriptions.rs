//! The descriptions of the built-in types, from `k8s-openapi`.
//!
//! Its feature `schemars` describes every type; only the texts are used. They are built on first use. The final binary
//! chooses the version of Kubernetes for `k8s-openapi`, so the newest types may have no texts.

use std::sync::LazyLock;

use k8s_openapi::api;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::kinds;
use crate::kinds::entry::{Texts, texts};

/// Kinds that are not stored, and those of subresources.
const OTHERS: &[Texts] = &[
    texts::<api::authentication::v1::SelfSubjectReview>,
    texts::<api::authentication::v1::TokenReview>,
    texts::<api::authorization::v1::LocalSubjectAccessReview>,
    texts::<api::authorization::v1::SelfSubjectAccessReview>,
    texts::<api::authorization::v1::SelfSubjectRulesReview>,
    texts::<api::authorization::v1::SubjectAccessReview>,
    texts::<api::autoscaling::v1::Scale>,
    texts::<api::core::v1::Binding>,
    texts::<api::core::v1::ComponentStatus>,
    texts::<api::policy::v1::Eviction>,
];

static COMPONENTS: LazyLock<Map<String, Value>> = LazyLock::new(build);

/// The description of a type by its name in OpenAPI; empty when there is none.
pub(crate) fn of_type(name: &str) -> &'static str {
    text(
        COMPONENTS
            .get(name)
            .map(|component| &component["description"]),
    )
}

/// The description of a field of a type; empty when there is none.
pub(crate) fn of_field(name: &str, field: &str) -> &'static str {
    let component = COMPONENTS.get(name);
    text(component.map(|component| &component["properties"][field]["description"]))
}

fn text(value: Option<&'static Value>) -> &'static str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn build() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let of_kinds = kinds::KINDS.iter().copied().flatten();
    let of_kinds = of_kinds.map(|entry| &entry.texts);
    for add in of_kinds.chain(OTHERS) {
        add(&mut generator);
    }
    generator.take_definitions(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::data::Data;

    #[test]
    fn each_kind_of_the_table_has_descriptions() {
        let versions = Data::get().versions.iter();
        for resource in versions.flat_map(|version| &version.resources) {
            let name = resource.root().unwrap().open_api_name();
            assert!(!of_type(&name).is_empty(), "{name}");
            assert!(!of_field(&name, "kind").is_empty(), "{name}");
        }
    }
}
