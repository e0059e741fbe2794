//! The store against the simplest model of it: a sorted map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube_core::{Expression, Selector};

use super::*;
use crate::fifo::Snapshot;
use crate::object::Stored;
use crate::sample::cases;
use reeve_client::ObjectKey;

/// `(namespace, name)` and `(version, label)`.
type Model = BTreeMap<(Option<String>, String), (u64, Option<String>)>;

fn object(key: &(Option<String>, String), (version, label): &(u64, Option<String>)) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.namespace.clone_from(&key.0);
    map.metadata.name = Some(key.1.clone());
    map.metadata.resource_version = Some(version.to_string());
    map.metadata.labels = label
        .clone()
        .map(|label| [("app".to_owned(), label)].into_iter().collect());
    map
}

fn place(number: u16) -> (Option<String>, String) {
    let namespace = match number % 4 {
        0 => None,
        other => Some(format!("ns-{other}")),
    };
    (namespace, format!("name-{}", number / 4))
}

fn label(number: u16) -> Option<String> {
    (!number.is_multiple_of(4)).then(|| format!("l{}", number % 4))
}

/// An object as a line, to be compared.
fn line(map: &ConfigMap) -> String {
    let label = map.label("app").unwrap_or("-");
    format!("{}@{} {label}", map.key_ref(), map.resource_version())
}

fn lines(model: &Model) -> Vec<String> {
    model
        .iter()
        .map(|(key, value)| line(&object(key, value)))
        .collect()
}

fn listed<'a>(objects: impl IntoIterator<Item = &'a Arc<ConfigMap>>) -> Vec<String> {
    objects.into_iter().map(|map| line(map)).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, u16),
    Delete(u16),
    Replace(Vec<(u16, u16)>),
    Keep,
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0..80_u16;
    prop_oneof![
        8 => (number.clone(), 0..4_u16).prop_map(|(place, label)| Step::Put(place, label)),
        4 => number.clone().prop_map(Step::Delete),
        1 => proptest::collection::vec((number, 0..4_u16), 0..60).prop_map(Step::Replace),
        2 => Just(Step::Keep),
    ]
}

fn take(indexer: &Indexer<ConfigMap>, model: &mut Model, version: u64, step: Step) {
    match step {
        Step::Put(at, marked) => {
            let (key, value) = (place(at), (version, label(marked)));
            let map = Arc::new(object(&key, &value));
            indexer.change(|change| {
                change.apply(Delta::Updated(map), false);
                change.advance(version.to_string().into());
            });
            model.insert(key, value);
        }
        Step::Delete(at) => {
            let key = place(at);
            let deletion = Deletion::FinalStateUnknown {
                key: object(&key, &(0, None)).key(),
                last: None,
            };
            indexer.change(|change| change.apply(Delta::Deleted(deletion), false));
            model.remove(&key);
        }
        Step::Replace(list) => {
            let listed = list
                .into_iter()
                .map(|(at, marked)| (place(at), (version, label(marked))));
            let listed: Vec<_> = listed.collect();
            let objects = listed
                .iter()
                .map(|(key, value)| Arc::new(object(key, value)));
            let snapshot = Snapshot {
                objects: objects.collect(),
                retained: Vec::new(),
                new_epoch: false,
                reread: Arc::default(),
                resource_version: version.to_string().into(),
            };
            indexer.replace(snapshot, false);
            *model = listed.into_iter().collect();
        }
        Step::Keep => {}
    }
}

fn agree(indexer: &Indexer<ConfigMap>, model: &Model, page: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(listed(&indexer.list()), lines(model));
    prop_assert_eq!(indexer.len(), model.len());
    for number in 0..80 {
        let key = place(number);
        let map = object(&key, &(0, None));
        let found = indexer.get_ref(map.key_ref());
        prop_assert_eq!(
            found.as_ref().map(|map| line(map)),
            model.get(&key).map(|value| line(&object(&key, value)))
        );
    }
    // Pages, each after the last key of the one before, together are everything.
    for namespace in [None, Some(""), Some("ns-2"), Some("none")] {
        let wanted = model.iter().filter(|((place, _), _)| {
            namespace.is_none_or(|name| place.as_deref().unwrap_or_default() == name)
        });
        let wanted: Vec<_> = wanted
            .map(|(key, value)| line(&object(key, value)))
            .collect();
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let objects =
                indexer.list_range(namespace, after.as_ref().map(ObjectKey::as_ref), page);
            prop_assert!(objects.len() <= page);
            let Some(last) = objects.last() else {
                break;
            };
            after = Some(last.key());
            pages.extend(listed(&objects));
        }
        prop_assert_eq!(&pages, &wanted);
        if let Some(namespace) = namespace {
            prop_assert_eq!(
                listed(&indexer.by_index(NAMESPACE_INDEX, namespace).unwrap()),
                wanted
            );
        }
    }
    let spaces: BTreeSet<_> = model
        .keys()
        .map(|(space, _)| space.clone().unwrap_or_default())
        .collect();
    let values = indexer.index_values(NAMESPACE_INDEX).unwrap();
    prop_assert!(
        values
            .iter()
            .map(AsRef::as_ref)
            .eq(spaces.iter().map(String::as_str))
    );
    Ok(())
}

proptest! {
    #![proptest_config(cases(400))]

    /// After any steps, every way to read agrees with the map, and kept snapshots have not changed.
    #[test]
    fn the_store_reads_as_a_sorted_map_and_snapshots_do_not_change(
        steps in proptest::collection::vec(step(), 0..80),
        page in 1..9_usize,
    ) {
        let indexer = Indexer::new();
        let mut model = Model::new();
        let mut kept = Vec::new();
        for (version, step) in (1..).zip(steps) {
            if let Step::Keep = step {
                kept.push((indexer.snapshot(), indexer.resource_version(), lines(&model)));
            }
            take(&indexer, &mut model, version, step);
        }
        agree(&indexer, &model, page)?;
        for (snapshot, version, wanted) in kept {
            prop_assert_eq!(listed(snapshot.iter()), wanted.clone());
            prop_assert_eq!((snapshot.len(), snapshot.resource_version()), (wanted.len(), &version));
            prop_assert_eq!(snapshot.keys().count(), wanted.len());
            let found = snapshot.iter().filter(|map| snapshot.get(map.key_ref()).is_some());
            prop_assert_eq!(found.count(), wanted.len());
        }
    }

    /// An index of the label changes which objects are checked, and not which are found.
    #[test]
    fn a_label_index_finds_what_a_scan_finds_and_checks_fewer(
        steps in proptest::collection::vec(step(), 0..80),
        value in 0..4_u16,
        namespace in proptest::option::of(0..4_u16),
    ) {
        let (indexed, scanned) = (Indexer::new(), Indexer::new());
        indexed.add_label_index("app").unwrap();
        let (mut model, mut other) = (Model::new(), Model::new());
        for (version, step) in (1..).zip(steps) {
            take(&indexed, &mut model, version, step.clone());
            take(&scanned, &mut other, version, step);
        }
        let namespace = namespace.map(|number| format!("ns-{number}"));
        let namespace = namespace.as_deref();
        let value = format!("l{value}");
        for expression in [
            Expression::Equal("app".to_owned(), value.clone()),
            Expression::In("app".to_owned(), [value.clone(), "l1".to_owned()].into_iter().collect()),
            Expression::NotEqual("app".to_owned(), value.clone()),
            Expression::NotIn("app".to_owned(), [value.clone()].into_iter().collect()),
            Expression::Exists("app".to_owned()),
            Expression::DoesNotExist("app".to_owned()),
        ] {
            let narrow = matches!(expression, Expression::Equal(..) | Expression::In(..));
            let selector = Selector::from_iter([expression]);
            let found = listed(&indexed.snapshot().select(namespace, &selector));
            prop_assert_eq!(&found, &listed(&scanned.snapshot().select(namespace, &selector)));
            if narrow && namespace.is_none() {
                prop_assert_eq!(indexed.snapshot().0.candidates(namespace, &selector, &[]).len(), found.len());
            }
        }
        prop_assert_eq!(
            listed(&indexed.by_index("label:app", &value).unwrap()),
            lines(&model.into_iter().filter(|(_, (_, label))| label.as_ref() == Some(&value)).collect())
        );
    }
}
