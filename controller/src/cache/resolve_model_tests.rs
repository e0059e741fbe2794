//! The precedence table at random, against a slow reference.

use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;
use reeve_informer::SkipPath;

use super::super::super::options::StoreOptions;
use super::*;

/// The options of one level.
#[derive(Clone, Debug)]
struct Said {
    labels: Option<String>,
    fields: Option<String>,
    /// The number of paths.
    skipped: Option<usize>,
    /// The text that the transform writes; `Some(None)` is set to none.
    transform: Option<Option<i64>>,
}

/// The options of namespaces; "*" is all others.
type Places = Option<BTreeMap<String, Said>>;

/// The options of the store: its form, and the seconds of its resync.
type Stored = (Option<StoreForm>, Option<u64>);

#[derive(Clone, Debug)]
struct Level {
    said: Said,
    places: Places,
    stored: Stored,
}

#[derive(Clone, Debug)]
struct Model {
    all: Level,
    own: Option<Level>,
    /// The namespaces watched by themselves beside all others.
    excluded: BTreeSet<Arc<str>>,
}

/// A field added to the options has to be added to the model, too: this does not compile until it is named here.
fn every_field_is_in_the_model(options: &CacheOptions) {
    let CacheOptions {
        selected,
        namespaces,
        store,
        // Options of all kinds, and no others.
        linger: _,
        kinds,
    } = options;
    let StoreOptions { form: _, resync: _ } = store;
    let Selected {
        labels: _,
        fields: _,
        skip: _,
        transform: _,
    } = selected;
    if let Some(namespaces) = namespaces {
        let Namespaces {
            named: _,
            others: _,
        } = namespaces;
    }
    for (_, own) in kinds {
        let KindOptions {
            selected: _,
            namespaces: _,
            store: _,
            // Options of the kind, and no others.
            decoded: _,
            packed: _,
        } = own;
    }
}

fn said() -> impl Strategy<Value = Said> {
    let fields = prop_oneof![
        Just(String::new()),
        "[ab]=[12]".boxed(),
        Just("metadata.namespace=red".to_owned()),
        Just("a=1,metadata.namespace==blue".to_owned()),
    ];
    let parts = (
        option::of("[ab]?"),
        option::of(fields),
        option::of(0..3_usize),
        option::of(option::of(1..4_i64)),
    );
    parts.prop_map(|(labels, fields, skipped, transform)| Said {
        labels,
        fields,
        skipped,
        transform,
    })
}

fn level() -> impl Strategy<Value = Level> {
    let name = prop::sample::select(vec!["red", "blue", "*"]).prop_map(str::to_owned);
    let places = option::of(btree_map(name, said(), 0..4));
    let form = prop::sample::select(vec![StoreForm::Typed, StoreForm::Metadata]);
    let stored = (option::of(form), option::of(0..3_u64));
    (said(), places, stored).prop_map(|(said, places, stored)| Level {
        said,
        places,
        stored,
    })
}

fn model() -> impl Strategy<Value = Model> {
    let excluded = prop::sample::subsequence(vec!["blue", "red"], 0..=2);
    (level(), option::of(level()), excluded).prop_map(|(all, own, excluded)| Model {
        all,
        own,
        excluded: excluded.into_iter().map(Arc::from).collect(),
    })
}

fn selected(said: &Said) -> Selected {
    let mut selected = Selected::new();
    if let Some(labels) = &said.labels {
        selected = selected.labels(labels.as_str());
    }
    if let Some(fields) = &said.fields {
        selected = selected.fields(fields.as_str());
    }
    if let Some(skipped) = said.skipped {
        let path = |_| -> SkipPath { ".status".parse().unwrap() };
        selected = selected.skip((0..skipped).map(path));
    }
    match said.transform {
        None => selected,
        Some(None) => selected.no_transform(),
        Some(Some(mark)) => selected.transform_metadata(move |meta| meta.generation = Some(mark)),
    }
}

fn built(model: &Model) -> CacheOptions {
    let Level {
        said,
        places,
        stored: (form, resync),
    } = &model.all;
    let mut options = CacheOptions::new().selected(selected(said));
    for (name, said) in places.iter().flatten() {
        options = match name.as_str() {
            "*" => options.in_all_others(selected(said)),
            name => options.in_namespace(name, selected(said)),
        };
    }
    if let Some(form) = form {
        options = options.form(*form);
    }
    if let Some(resync) = resync {
        options = options.resync(Duration::from_secs(*resync));
    }
    if let Some(level) = &model.own {
        let Level {
            said,
            places,
            stored: (form, resync),
        } = level;
        let mut own = KindOptions::new();
        own.selected = selected(said);
        if places.is_some() {
            own = own.in_every_namespace();
        }
        for (name, said) in places.iter().flatten() {
            own = match name.as_str() {
                "*" => own.in_all_others(selected(said)),
                name => own.in_namespace(name, selected(said)),
            };
        }
        if let Some(form) = form {
            own = own.form(*form);
        }
        if let Some(resync) = resync {
            own = own.resync(Duration::from_secs(*resync));
        }
        options = options.for_kind::<ConfigMap>(own);
    }
    every_field_is_in_the_model(&options);
    options
}

/// The cached selection of one place: scope, labels, the terms of the fields, the number of skipped paths, the text of
/// the transform.
type Outcome = (Scope, String, Vec<String>, usize, Option<i64>);

/// The precedence table as code.
fn reference(model: &Model, place: &str) -> Outcome {
    let own = model.own.as_ref();
    let own_places = own.and_then(|own| own.places.clone());
    let in_force = own_places.clone().or_else(|| model.all.places.clone());
    // Every namespace as one is a place without options.
    let every = in_force.is_none_or(|places| places.is_empty());
    let mut levels: Vec<Said> = Vec::new();
    if !(place == "*" && every) {
        levels.extend(own_places.and_then(|places| places.get(place).cloned()));
    }
    levels.extend(own.map(|own| own.said.clone()));
    if !(place == "*" && every) {
        let places = model.all.places.clone().unwrap_or_default();
        levels.extend(places.get(place).cloned());
    }
    levels.push(model.all.said.clone());
    let (mut labels, mut fields) = (String::new(), String::new());
    let (mut skipped, mut transform) = (0, None);
    for said in levels.iter().rev() {
        if let Some(said) = &said.labels {
            labels.clone_from(said);
        }
        if let Some(said) = &said.fields {
            fields.clone_from(said);
        }
        if let Some(said) = said.skipped {
            skipped = said;
        }
        if let Some(said) = said.transform {
            transform = said;
        }
    }
    let mut scope = match place {
        "*" => Scope::Cluster,
        name => Scope::namespace(name),
    };
    let fields = fields.split(',').filter(|term| !term.is_empty());
    let mut fields: Vec<String> = fields.map(str::to_owned).collect();
    if place == "*" && !model.excluded.is_empty() {
        let excluded = model.excluded.iter();
        fields.extend(excluded.map(|name| format!("metadata.namespace!={name}")));
    } else {
        // The path's namespace is not repeated.
        for name in ["red", "blue"] {
            let terms = [
                format!("metadata.namespace={name}"),
                format!("metadata.namespace=={name}"),
            ];
            let named = fields.iter().any(|term| terms.contains(term));
            if named && (place == "*" || place == name) {
                scope = Scope::namespace(name);
                fields.retain(|term| !terms.contains(term));
            }
        }
    }
    (scope, labels, fields, skipped, transform)
}

/// The number of cases in `PROPTEST_CASES`, else `default`.
fn cases(default: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig {
            cases: default,
            ..config
        },
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn what_is_resolved_is_what_the_table_says(model in model()) {
        let options = built(&model);
        options.validate().unwrap();
        for place in ["red", "blue", "green", "*"] {
            let (scope, named) = match place {
                "*" => (Scope::Cluster, model.excluded.clone()),
                name => (Scope::namespace(name), none()),
            };
            let Resolved { selection, skip, transform } =
                resolve(&options, &maps(), &scope, &named).unwrap();
            let Selection { scope, labels, fields } = selection;
            let mark = transform.map(|transform| {
                let Transform::Metadata(change) = transform else {
                    panic!("{transform:?}");
                };
                let mut meta = ObjectMeta::default();
                change(&mut meta);
                meta.generation.unwrap()
            });
            let fields = terms(&fields).map(str::to_owned).collect();
            let found: Outcome = (scope, labels, fields, skip.len(), mark);
            prop_assert_eq!(found, reference(&model, place), "in {}", place);
        }
        let (form, resync) = model.all.stored;
        let own = model.own.map_or((None, None), |own| own.stored);
        prop_assert_eq!(options.form_of(&maps()), own.0.or(form));
        let resync = own.1.or(resync).filter(|seconds| *seconds > 0);
        prop_assert_eq!(options.resync_of(&maps()), resync.map(Duration::from_secs));
    }
}
