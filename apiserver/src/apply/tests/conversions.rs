//! Versions with fields of their own, and maps in maps of any depth.

use serde_json::{Map, Value, json};

use super::super::set::Set;
use super::world::{World, converted_world, undeclared_world, world};

const VERSIONS: [&str; 4] = ["g/v1", "g/v2", "g/v3", "g/v4"];

/// The number in the name of a version.
fn number(version: &str) -> usize {
    version.trim_start_matches("g/v").parse().unwrap()
}

fn maps() -> Value {
    json!({"maps": {"$ref": "Maps"}})
}

/// Maps whose keys are a letter, as often as the number of the version.
fn lettered() -> World {
    fn repeat(value: &Value, count: usize) -> Value {
        let Value::Object(map) = value else {
            return value.clone();
        };
        let entries = map
            .iter()
            .map(|(key, value)| (key[..1].repeat(count), repeat(value, count)));
        Value::Object(entries.collect())
    }
    let versions = VERSIONS.map(|version| (version, maps()));
    converted_world(&versions, |object, _, to| {
        let mut object = object.clone();
        if let Some(maps) = object.get_mut("maps") {
            *maps = repeat(maps, number(to));
        }
        Ok(object)
    })
}

/// A struct whose fields end with the number of the version.
fn renamed() -> World {
    let versions = VERSIONS.map(|version| {
        let number = number(version);
        let name = json!({"type": "string"});
        let fields = json!({
            "name": name, format!("text{number}"): name,
            format!("part{number}"): {"type": "object", "properties": {"name": name}},
        });
        (
            version,
            json!({"struct": {"type": "object", "properties": fields}}),
        )
    });
    converted_world(&versions, |object, from, to| {
        let mut object = object.clone();
        if let Some(fields) = object.get_mut("struct").and_then(Value::as_object_mut) {
            let end = number(from).to_string();
            let renamed = std::mem::take(fields).into_iter().map(|(key, value)| {
                let stem = key.strip_suffix(&end);
                let key = stem.map(|stem| format!("{stem}{}", number(to)));
                (key.unwrap_or_else(|| "name".to_owned()), value)
            });
            *fields = renamed.collect::<Map<_, _>>();
        }
        Ok(object)
    })
}

/// A struct with a name and, in one version, a field.
fn named(field: &str, version: &str, value: Value) -> Value {
    json!({"struct": {"name": "x", format!("{field}{}", number(version)): value}})
}

fn path(field: &str, version: &str) -> String {
    format!(".struct.{field}{}", number(version))
}

/// Each choice of three of the versions.
fn triples() -> impl Iterator<Item = [&'static str; 3]> {
    let versions = || VERSIONS.into_iter().take(3);
    versions().flat_map(move |one| {
        versions().flat_map(move |two| versions().map(move |three| [one, two, three]))
    })
}

#[test]
pub(super) fn a_renamed_field_goes_with_its_only_applier() {
    for [one, two, three] in triples() {
        for (field, value) in [("text", json!("v")), ("part", json!({"name": "n"}))] {
            renamed()
                .apply_in(one, "a", named(field, one, value))
                .apply_in(two, "a", json!({"struct": {"name": "x"}}))
                .reads_as(three, json!({"struct": {"name": "x"}}))
                .owners(&[("a+", &[".struct.name"])]);
        }
    }
}

#[test]
pub(super) fn a_renamed_field_stays_for_another_applier() {
    for [one, two, three] in triples() {
        let cases = [
            ("text", json!("v"), ""),
            ("part", json!({"name": "n"}), ".name"),
        ];
        for (field, value, below) in cases {
            let mut other = named(field, two, value.clone());
            other["struct"].as_object_mut().unwrap().remove("name");
            renamed()
                .apply_in(one, "a", named(field, one, value.clone()))
                .apply_in(two, "b", other)
                .apply_in(three, "a", json!({"struct": {"name": "x"}}))
                .reads_as(three, named(field, three, value))
                .owners(&[
                    ("a+", &[".struct.name"]),
                    ("b+", &[&(path(field, two) + below)]),
                ]);
        }
    }
}

#[test]
pub(super) fn a_renamed_field_stays_for_its_updater() {
    for [one, two, three] in triples() {
        renamed()
            .update_in(one, "u", named("text", one, json!("v")))
            .apply_in(two, "a", named("text", two, json!("v")))
            .apply_in(three, "a", json!({"struct": {"name": "x"}}))
            .reads_as(three, named("text", three, json!("v")))
            .owners(&[
                ("a+", &[".struct.name"]),
                ("u", &[".struct", ".struct.name", &path("text", one)]),
            ]);
    }
}

#[test]
pub(super) fn an_updater_takes_a_renamed_field() {
    for [one, two, three] in triples() {
        renamed()
            .apply_in(one, "a", named("text", one, json!("v")))
            .update_in(two, "u", named("text", two, json!("w")))
            .reads_as(three, named("text", three, json!("w")))
            .owners(&[("a+", &[".struct.name"]), ("u", &[&path("text", two)])]);
    }
}

/// The writes of the cases with maps of any depth; `wrap` puts the maps into an object.
fn grow(world: World, wrap: fn(Value) -> Value) -> World {
    world
        .apply_in(
            "g/v1",
            "a",
            wrap(json!({"k": {"l": null}, "m": {"n": null}})),
        )
        .apply_in("g/v2", "b", wrap(json!({"k": null, "m": {"n": null}})))
        .update_in(
            "g/v3",
            "u",
            wrap(json!({"k": {"l": {"m": null}}, "m": {"n": {"o": null}}})),
        )
        .update_in(
            "g/v2",
            "v",
            wrap(json!({"k": {"l": {"m": {"n": null}}}, "m": {"n": {"o": {"p": null}}}})),
        )
        .update_in(
            "g/v3",
            "u",
            wrap(json!({
                "k": {"l": {"m": {"n": {"o": null}}}},
                "m": {"n": {"o": {"p": {"q": null}}}},
            })),
        )
}

#[test]
pub(super) fn maps_of_any_depth_keep_what_others_own_in_them() {
    let left = json!({"k": null, "m": {"n": {"o": {"p": {"q": null}}}}});
    grow(world(maps()), |maps| json!({"maps": maps}))
        .apply_in("g/v4", "a", json!({"maps": null}))
        .is(json!({"maps": left}))
        .owners(&[
            ("a+", &[".maps"]),
            ("b+", &[".maps.k", ".maps.m", ".maps.m.n"]),
            ("u", &[".maps.m.n.o", ".maps.m.n.o.p.q"]),
            ("v", &[".maps.m.n.o.p"]),
        ]);
    grow(undeclared_world(), |maps| maps)
        .apply_in("g/v4", "a", json!({}))
        .is(left)
        .owners(&[
            ("b+", &[".k", ".m", ".m.n"]),
            ("u", &[".m.n.o", ".m.n.o.p.q"]),
            ("v", &[".m.n.o.p"]),
        ]);
}

#[test]
pub(super) fn each_owner_keeps_its_keys_in_its_version() {
    lettered()
        .apply_in("g/v1", "a", json!({"maps": {"k": {"l": null}, "m": {"n": null}}}))
        .apply_in("g/v2", "b", json!({"maps": {"kk": null, "mm": {"nn": null}}}))
        .update_in(
            "g/v3",
            "u",
            json!({"maps": {"kkk": {"lll": {"mmm": {"nnn": null}}}, "mmm": {"nnn": {"ooo": {"ppp": null}}}}}),
        )
        .apply_in("g/v4", "a", json!({"maps": null}))
        .reads_as(
            "g/v4",
            json!({"maps": {"kkkk": null, "mmmm": {"nnnn": {"oooo": {"pppp": null}}}}}),
        )
        .owners(&[
            ("a+", &[".maps"]),
            ("b+", &[".maps.kk", ".maps.mm", ".maps.mm.nn"]),
            ("u", &[".maps.mmm.nnn.ooo", ".maps.mmm.nnn.ooo.ppp"]),
        ]);
}

#[test]
pub(super) fn an_applier_removes_its_key_with_what_an_updater_put_below() {
    lettered()
        .apply_in("g/v3", "a", json!({"maps": {"kkk": {"lll": null}}}))
        .update_in("g/v1", "u", json!({"maps": {"k": {"l": {"m": null}}}}))
        .apply_in(
            "g/v2",
            "a",
            json!({"maps": {"kk": {"ll": null}, "mm": {"nn": null}}}),
        )
        .apply_in("g/v3", "a", json!({"maps": {"kkk": null, "mmm": null}}))
        .reads_as("g/v3", json!({"maps": {"kkk": null, "mmm": null}}))
        .owners(&[("a+", &[".maps.kkk", ".maps.mmm"])]);
}

#[test]
pub(super) fn a_key_that_an_updater_made_stays_when_an_applier_drops_it() {
    lettered()
        .update_in("g/v1", "u", json!({"maps": {"k": {"l": {"m": null}}}}))
        .apply_in(
            "g/v2",
            "a",
            json!({"maps": {"kk": {"ll": null}, "mm": {"nn": null}}}),
        )
        .apply_in("g/v3", "a", json!({"maps": {"kkk": null, "mmm": null}}))
        .reads_as(
            "g/v3",
            json!({"maps": {"kkk": {"lll": {"mmm": null}}, "mmm": null}}),
        )
        .owners(&[
            ("a+", &[".maps.kkk", ".maps.mmm"]),
            ("u", &[".maps", ".maps.k", ".maps.k.l", ".maps.k.l.m"]),
        ]);
}

#[test]
pub(super) fn ignored_fields_count_in_the_version_of_each_write() {
    let ignoring = |world: World, versions: &[&str]| {
        versions.iter().fold(world, |world, version| {
            let key = "m".repeat(number(version));
            world.ignoring(version, Set::of(&[&["maps", &key]]))
        })
    };
    // What is ignored is removed by no apply.
    ignoring(lettered(), &VERSIONS)
        .apply_in(
            "g/v1",
            "a",
            json!({"maps": {"k": {"l": null}, "m": {"n": null}}}),
        )
        .apply_in(
            "g/v2",
            "b",
            json!({"maps": {"kk": null, "mm": {"nn": null}}}),
        )
        .apply_in("g/v4", "a", json!({"maps": null}))
        .reads_as(
            "g/v4",
            json!({"maps": {"kkkk": null, "mmmm": {"nnnn": null}}}),
        )
        .owners(&[("a+", &[".maps"]), ("b+", &[".maps.kk"])]);
    // A write that ignores a field takes it from no other manager.
    let ignoring = |world: World| world.ignoring("g/v2", Set::of(&[&["maps", "m"]]));
    ignoring(world(maps()))
        .update_in(
            "g/v1",
            "u",
            json!({"maps": {"k": {"l": null}, "m": {"n": null}}}),
        )
        .update_in(
            "g/v2",
            "v",
            json!({"maps": {"k": {"l": null}, "m": {"o": null}}}),
        )
        .is(json!({"maps": {"k": {"l": null}, "m": {"o": null}}}))
        .owners(&[("u", &[".maps", ".maps.k", ".maps.k.l", ".maps.m"])]);
    ignoring(world(maps()))
        .apply_in(
            "g/v1",
            "a",
            json!({"maps": {"k": {"l": null}, "m": {"n": null}}}),
        )
        .apply_in(
            "g/v2",
            "b",
            json!({"maps": {"k": {"l": null}, "m": {"o": null}}}),
        )
        .owners(&[
            ("a+", &[".maps.k", ".maps.k.l", ".maps.m", ".maps.m.n"]),
            ("b+", &[".maps.k", ".maps.k.l"]),
        ]);
}

/// `g/v1` has no form of an object without the field that `g/v2` requires.
#[test]
pub(super) fn an_object_is_converted_only_with_the_field_that_its_conversion_needs() {
    let text = json!({"type": "string"});
    let versions = [
        ("g/v1", json!({"derived": text, "common": text})),
        ("g/v2", json!({"needed": text, "common": text})),
    ];
    let convert = |object: &Value, _: &str, to: &str| {
        let mut object = object.clone();
        let (from, to) = match to {
            "g/v1" => ("needed", "derived"),
            _ => ("derived", "needed"),
        };
        let map = object.as_object_mut().unwrap();
        let is_new = map
            .keys()
            .all(|key| matches!(key.as_str(), "apiVersion" | "kind"));
        match map.remove(from) {
            Some(value) => map.insert(to.to_owned(), value),
            None if is_new => None,
            None => return Err(format!("no field {from:?}")),
        };
        Ok(object)
    };
    converted_world(&versions, convert)
        .apply_in("g/v2", "b", json!({"needed": "x"}))
        .apply_in("g/v1", "a", json!({"common": "c"}))
        .apply_in("g/v2", "b", json!({"needed": "y"}))
        .reads_as("g/v2", json!({"needed": "y", "common": "c"}))
        .owners(&[("a+", &[".common"]), ("b+", &[".needed"])]);
}
