//! The built-in resources, from the table of types and the rules of each kind.

use std::collections::HashMap;
use std::sync::Arc;

use super::KINDS;
use super::data::{Data, Resource, Version};
use super::strategy::{Plain, Strategy};
use crate::apply::LazySchema;
use crate::resource::{Conversion, Generation, ResourceInfo, Scale, StatusUpdate};
use crate::table::cells::aged;

/// All built-in resources.
pub(crate) fn builtin() -> Vec<ResourceInfo> {
    let versions = Data::get().versions.iter();
    let mut all: Vec<ResourceInfo> = versions
        .flat_map(|version| version.resources.iter().map(|one| describe(version, one)))
        .collect();
    let is_stored = |info: &&ResourceInfo| info.storage_version && !info.storage.is_empty();
    let stored: HashMap<String, String> = all
        .iter()
        .filter(is_stored)
        .map(|info| (info.storage.clone(), info.api_version()))
        .collect();
    for info in &mut all {
        if let Some(stored) = stored.get(&info.storage) {
            info.stored_in.clone_from(stored);
        }
    }
    all
}

/// The rules of a kind.
fn strategy(group: &str, plural: &str) -> &'static dyn Strategy {
    let mut all = KINDS.iter().copied().flatten();
    let found = all.find(|entry| (entry.group, entry.plural) == (group, plural));
    found.map_or(&Plain, |entry| entry.strategy)
}

fn describe(version: &'static Version, resource: &'static Resource) -> ResourceInfo {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let has = |name: &str| resource.subresources.iter().any(|one| one.name == name);
    // A resource that cannot be written answers a question instead.
    let is_stored = resource.verbs.contains(&"delete");
    let storage = match (is_stored, version.group) {
        (false, _) => String::new(),
        (true, "") => resource.plural.to_owned(),
        (true, group) => format!("{}.{group}", resource.plural),
    };
    let strategy = strategy(version.group, resource.plural);
    let mut info = ResourceInfo {
        group: version.group.to_owned(),
        version: version.name.to_owned(),
        kind: resource.kind.to_owned(),
        list_kind: format!("{}List", resource.kind),
        plural: resource.plural.to_owned(),
        singular: resource.singular.to_owned(),
        short_names: owned(&resource.short_names),
        categories: owned(&resource.categories),
        namespaced: resource.namespaced,
        verbs: &resource.verbs,
        subresources: &resource.subresources,
        of: resource.root(),
        strategy,
        status: has("status"),
        status_update: StatusUpdate::Metadata { except: &[] },
        scale: has("scale").then(|| Scale {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".spec.selector".to_owned()),
        }),
        generation: Generation::None,
        unconditional_update: true,
        orphans_by_default: false,
        create_on_update: false,
        delete_returns_object: false,
        columns: strategy.columns(),
        selectable_fields: Vec::new(),
        schema: None,
        structural: None,
        types: LazySchema::default(),
        storage_version: true,
        stored_in: String::new(),
        conversion: Conversion::BuiltIn,
        webhook: None,
        schemas: Arc::default(),
        stored: None,
        converted_up_to: 0,
        served: true,
        deprecation: None,
        custom: false,
        storage,
    };
    if info.columns.is_empty() {
        info.columns.push(aged());
    }
    strategy.describe(&mut info);
    info
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The kinds of the table that have no rules of their own. None of them is stored.
    const PLAIN: &[(&str, &str)] = &[
        ("", "bindings"),
        ("", "componentstatuses"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    ];

    #[test]
    fn each_kind_of_the_table_has_rules_or_is_plain_on_purpose() {
        let with_rules = KINDS.iter().copied().flatten();
        let with_rules: Vec<_> = with_rules
            .map(|entry| (entry.group, entry.plural))
            .collect();
        let versions = Data::get().versions.iter();
        let served: BTreeSet<_> = versions
            .flat_map(|version| {
                let all = version.resources.iter();
                all.map(|one| (version.group, one.plural))
            })
            .collect();
        let listed: Vec<_> = with_rules.iter().chain(PLAIN).copied().collect();
        let distinct: BTreeSet<_> = listed.iter().copied().collect();
        assert_eq!(distinct.len(), listed.len(), "no kind is listed twice");
        assert_eq!(distinct, served);
    }
}
