//! Laws that hold for any sequence of writes.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::manage::ApplyError;
use super::super::path::Element;
use super::super::set::Set;
use super::super::walk;
use super::world::{World, version, world};

fn fields() -> Value {
    json!({
        "scalar": {"type": "integer"},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "whole": {"type": "array", "items": {"type": "integer"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "struct": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
        "items": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"}}},
        },
    })
}

/// An object without nulls and empty values, whose list items are distinct.
fn object() -> impl Strategy<Value = Value> {
    let number = || 0i64..3;
    let names = || prop::collection::btree_set("[a-c]", 1..4).prop_shuffle_vec();
    let scalar = number().prop_map(Value::from);
    let set = names().prop_map(|names| json!(names));
    let whole = prop::collection::vec(number(), 1..3).prop_map(|items| json!(items));
    let map = prop::collection::btree_map("[a-c]", number(), 1..3).prop_map(|map| json!(map));
    let structure = (prop::option::of(number()), number()).prop_map(|(x, y)| match x {
        Some(x) => json!({"x": x, "y": y}),
        None => json!({"y": y}),
    });
    let items = (
        names(),
        prop::collection::vec(prop::option::of(number()), 4),
    )
        .prop_map(|(names, values)| {
            let items = names
                .into_iter()
                .zip(values)
                .map(|(name, value)| match value {
                    Some(value) => json!({"name": name, "value": value}),
                    None => json!({"name": name}),
                });
            Value::Array(items.collect())
        });
    let parts = (
        prop::option::of(scalar),
        prop::option::of(set),
        prop::option::of(whole),
        prop::option::of(map),
        prop::option::of(structure),
        prop::option::of(items),
    );
    parts.prop_map(|(scalar, set, whole, map, structure, items)| {
        let named = [
            ("scalar", scalar),
            ("set", set),
            ("whole", whole),
            ("map", map),
            ("struct", structure),
            ("items", items),
        ];
        let fields = named
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(fields.collect::<Map<_, _>>())
    })
}

/// Shuffles what a strategy of sets makes.
trait ShuffleVec {
    fn prop_shuffle_vec(self) -> BoxedStrategy<Vec<String>>;
}

impl<S: Strategy<Value = std::collections::BTreeSet<String>> + 'static> ShuffleVec for S {
    fn prop_shuffle_vec(self) -> BoxedStrategy<Vec<String>> {
        self.prop_map(|set| set.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
            .boxed()
    }
}

#[derive(Clone, Debug)]
enum Write {
    Apply(usize, Value),
    Force(usize, Value),
    Update(usize, Value),
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        (0usize..3, object()).prop_map(|(at, object)| Write::Apply(at, object)),
        (0usize..3, object()).prop_map(|(at, object)| Write::Force(at, object)),
        (0usize..3, object()).prop_map(|(at, object)| Write::Update(at, object)),
    ]
}

const MANAGERS: [&str; 3] = ["a", "b", "c"];

fn perform(mut world: World, write: &Write) -> World {
    let (at, object, force) = match write {
        Write::Update(at, object) => return world.update(MANAGERS[*at], object.clone()),
        Write::Apply(at, object) => (at, object, false),
        Write::Force(at, object) => (at, object, true),
    };
    match world.try_apply("g/v1", MANAGERS[*at], object, force) {
        Ok(()) => {}
        Err(ApplyError::Conflicts(_)) if !force => {}
        Err(error) => panic!("{error}"),
    }
    world
}

fn history() -> impl Strategy<Value = World> {
    prop::collection::vec(write(), 0..6)
        .prop_map(|writes| writes.iter().fold(world(fields()), perform))
}

/// The fields of an object, and of a value of its managers, in the schema of these tests.
fn set_of(object: &Value) -> Set {
    let version = version(&json!({"type": "object", "properties": fields()}));
    walk::to_set(&version.schema, version.schema.root(), object).unwrap()
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.live)
    }
}

/// `default` cases, or as many as `PROPTEST_CASES` says.
fn cases(default: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        return ProptestConfig {
            cases: default,
            ..config
        };
    }
    config
}

/// The part of `other` whose leaves are not in `one`. Items of the same key may be in both, with different fields.
fn apart(other: &Value, one: &Value) -> Value {
    let keep = |name: &str, value: &Value| match (&one[name], value) {
        (Value::Null, _) => Some(value.clone()),
        (Value::Object(taken), Value::Object(map)) => {
            let left = map.iter().filter(|(key, _)| !taken.contains_key(*key));
            let left: Map<_, _> = left
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            (!left.is_empty()).then(|| left.into())
        }
        (Value::Array(taken), Value::Array(items)) if name == "set" => {
            let left = items.iter().filter(|item| !taken.contains(item));
            let left: Vec<Value> = left.cloned().collect();
            (!left.is_empty()).then(|| left.into())
        }
        (Value::Array(taken), Value::Array(items)) if name == "items" => {
            let is_taken = |item: &Value| {
                let same = taken.iter().find(|taken| taken["name"] == item["name"]);
                same.is_some_and(|same| same.get("value").is_some())
            };
            let left = items.iter().map(|item| match is_taken(item) {
                true => json!({"name": item["name"]}),
                false => item.clone(),
            });
            Some(left.collect())
        }
        _ => None,
    };
    let fields = other.as_object().unwrap().iter();
    let kept = fields.filter_map(|(name, value)| Some((name.clone(), keep(name, value)?)));
    Value::Object(kept.collect())
}

/// An object whose items are in the order of their texts: the order of items of two appliers is that of their writes.
fn sorted(mut object: Value) -> Value {
    for name in ["set", "items"] {
        if let Some(items) = object.get_mut(name).and_then(Value::as_array_mut) {
            items.sort_by_key(Value::to_string);
        }
    }
    object
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn applying_twice_is_applying_once(world in history(), object in object()) {
        let once = world.force("a", object.clone());
        let live = once.live.clone();
        let twice = once.apply("a", object);
        prop_assert_eq!(twice.live, live);
    }

    #[test]
    fn an_applied_object_is_in_the_result(world in history(), object in object()) {
        let after = world.force("a", object.clone());
        let applied = set_of(&object);
        let live = set_of(&after.fields());
        prop_assert!(applied.difference(&live).is_empty());
        let mut again = after.clone();
        prop_assert!(again.try_apply("g/v1", "other", &object, false).is_ok());
        prop_assert_eq!(again.fields(), after.fields());
    }

    #[test]
    fn an_applier_owns_what_it_applied(world in history(), object in object()) {
        let after = world.force("a", object.clone());
        let entries = after.live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let own = entries.iter().find(|entry| entry["manager"] == "a" && entry["operation"] == "Apply");
        let owned = own.map_or_else(Set::default, |entry| Set::decode(&entry["fieldsV1"]).unwrap());
        prop_assert_eq!(owned, set_of(&object));
    }

    #[test]
    fn what_is_owned_is_there(world in history()) {
        let version = version(&json!({"type": "object", "properties": fields()}));
        let schema = &version.schema;
        let root = Some(schema.root());
        let live = set_of(&world.fields()).with_named_fields(schema, root);
        let entries = world.live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        for entry in entries {
            let owned = Set::decode(&entry["fieldsV1"]).unwrap();
            let missing = owned.difference(&live);
            prop_assert!(missing.is_empty(), "{:?}", missing);
        }
    }

    #[test]
    fn appliers_of_different_fields_can_come_in_any_order(one in object(), other in object()) {
        let other = apart(&other, &one);
        let key = |path: &Vec<Element>| matches!(path.last(), Some(Element::Key(_)))
            || path.len() == 3 && path.last() == Some(&Element::field("name"));
        let shared = set_of(&one).intersection(&set_of(&other)).paths();
        prop_assert!(shared.iter().all(key), "{:?}", shared);
        let first = world(fields()).apply("a", one.clone()).apply("b", other.clone());
        let second = world(fields()).apply("b", other).apply("a", one);
        prop_assert_eq!(sorted(first.fields()), sorted(second.fields()));
        prop_assert_eq!(first.owned(), second.owned());
    }

    #[test]
    fn applying_nothing_takes_back_what_only_this_applier_had(one in object(), other in object()) {
        let with = world(fields()).apply("a", one.clone());
        let mut both = with.clone();
        if both.try_apply("g/v1", "b", &other, false).is_ok() {
            let back = both.apply("b", json!({}));
            prop_assert_eq!(set_of(&back.fields()), set_of(&one));
            prop_assert_eq!(back.owned(), with.owned());
        }
    }

    #[test]
    fn values_stay_when_one_forces_them_and_releases_them(world in history(), object in object()) {
        // The second manager shares what the first one forces, so that nothing goes with the first.
        let shared = world.force("a", object.clone()).apply("b", object);
        let fields = shared.fields();
        let released = shared.apply("a", json!({}));
        prop_assert_eq!(released.fields(), fields);
    }

    #[test]
    fn an_update_by_its_own_result_changes_nothing(world in history()) {
        let fields = world.fields();
        let owned = world.owned();
        let after = world.update("a", fields.clone());
        prop_assert_eq!(after.fields(), fields);
        prop_assert_eq!(after.owned(), owned);
    }
}
