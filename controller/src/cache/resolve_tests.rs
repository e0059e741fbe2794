//! The precedence table case by case.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube_core::{ApiResource, GroupVersionKind, ObjectMeta};

use super::super::KindOptions;
use super::*;

#[path = "resolve_model_tests.rs"]
mod model;

fn maps() -> Kind {
    Kind::of::<ConfigMap>()
}

fn red() -> Scope {
    Scope::namespace("red")
}

fn none() -> BTreeSet<Arc<str>> {
    BTreeSet::new()
}

fn labels(selector: &str) -> Selected {
    Selected::new().labels(selector)
}

fn fields(selector: &str) -> Selected {
    Selected::new().fields(selector)
}

fn skip(paths: &[&str]) -> Selected {
    Selected::new().skip(paths.iter().map(|path| path.parse().unwrap()))
}

fn changed() -> Selected {
    Selected::new().transform_metadata(|_| {})
}

/// `labels|fields|skipped|transform`.
fn outcome(options: &CacheOptions, kind: &Kind, scope: &Scope) -> String {
    let resolved = resolve(options, kind, scope, &none()).unwrap();
    format!(
        "{}|{}|{}|{}",
        resolved.selection.labels,
        resolved.selection.fields,
        resolved.skip.len(),
        resolved.transform.is_some()
    )
}

#[test]
fn each_setting_comes_from_the_nearest_level_that_names_it() {
    let new = CacheOptions::new;
    let own = |selected: Selected| {
        let mut own = KindOptions::new();
        own.selected = selected;
        own
    };
    let all = || {
        labels("all")
            .fields("all=1")
            .skip([".all".parse().unwrap()])
            .transform_metadata(|_| {})
    };
    for (case, options, scope, wanted) in [
        ("nothing is said", new(), red(), "||0|false"),
        (
            "all kinds",
            new().selected(all()),
            red(),
            "all|all=1|1|true",
        ),
        (
            "all kinds, everywhere",
            new().selected(all()),
            Scope::Cluster,
            "all|all=1|1|true",
        ),
        (
            "labels: the entry of a namespace before all kinds",
            new().selected(all()).in_namespace("red", labels("entry")),
            red(),
            "entry|all=1|1|true",
        ),
        (
            "fields: the entry of a namespace before all kinds",
            new().selected(all()).in_namespace("red", fields("entry=1")),
            red(),
            "all|entry=1|1|true",
        ),
        (
            "skip: the entry of a namespace before all kinds",
            new()
                .selected(all())
                .in_namespace("red", skip(&[".a", ".b"])),
            red(),
            "all|all=1|2|true",
        ),
        (
            "transform: the entry of a namespace before all kinds",
            new()
                .selected(all())
                .in_namespace("red", Selected::new().no_transform()),
            red(),
            "all|all=1|1|false",
        ),
        (
            "an entry says nothing of another namespace",
            new()
                .selected(all())
                .in_namespace("blue", labels("entry"))
                .in_namespace("red", Selected::new()),
            red(),
            "all|all=1|1|true",
        ),
        (
            "labels: the kind before the entry of a namespace",
            new()
                .in_namespace("red", labels("entry"))
                .for_kind::<ConfigMap>(own(labels("kind"))),
            red(),
            "kind||0|false",
        ),
        (
            "fields: the kind before the entry of a namespace",
            new()
                .in_namespace("red", fields("entry=1"))
                .for_kind::<ConfigMap>(own(fields("kind=1"))),
            red(),
            "|kind=1|0|false",
        ),
        (
            "skip: the kind before the entry of a namespace",
            new()
                .in_namespace("red", skip(&[".a", ".b"]))
                .for_kind::<ConfigMap>(own(skip(&[".c"]))),
            red(),
            "||1|false",
        ),
        (
            "transform: the kind before the entry of a namespace",
            new()
                .in_namespace("red", changed())
                .for_kind::<ConfigMap>(KindOptions::new().no_transform()),
            red(),
            "||0|false",
        ),
        (
            "the kind's entry before the kind",
            new().for_kind::<ConfigMap>(
                own(all()).in_namespace("red", labels("kind entry").fields("ke=1")),
            ),
            red(),
            "kind entry|ke=1|1|true",
        ),
        (
            "each setting from its own level",
            new()
                .selected(skip(&[".a", ".b", ".c"]))
                .in_namespace("red", changed())
                .for_kind::<ConfigMap>(
                    own(fields("kind=1")).in_namespace("red", labels("kind entry")),
                ),
            red(),
            "kind entry|kind=1|3|true",
        ),
        (
            "the kind's entry inherits from the entry for all kinds",
            new()
                .selected(labels("all"))
                .in_namespace("red", labels("entry"))
                .for_kind::<ConfigMap>(KindOptions::new().in_namespace("red", Selected::new())),
            red(),
            "entry||0|false",
        ),
        (
            "the kind's entry inherits from all kinds",
            new()
                .selected(labels("all"))
                .for_kind::<ConfigMap>(KindOptions::new().in_namespace("red", Selected::new())),
            red(),
            "all||0|false",
        ),
        (
            "everything, said, is not inherited past",
            new()
                .selected(all())
                .in_namespace("red", labels("").fields("").skip([]).no_transform()),
            red(),
            "||0|false",
        ),
        (
            "everything, said of the kind, is not inherited past",
            new()
                .selected(all())
                .in_namespace("red", labels("entry"))
                .for_kind::<ConfigMap>(own(labels(""))),
            red(),
            "|all=1|1|true",
        ),
        (
            "all others have an entry, too",
            new()
                .selected(labels("all"))
                .in_namespace("red", labels("entry"))
                .in_all_others(labels("others")),
            Scope::Cluster,
            "others||0|false",
        ),
        (
            "what is said of all others is not said of every namespace as one",
            new()
                .selected(labels("all"))
                .in_namespace("red", labels("entry"))
                .in_all_others(labels("others"))
                .for_kind::<ConfigMap>(KindOptions::new().in_every_namespace()),
            Scope::Cluster,
            "all||0|false",
        ),
        (
            "the kind's all others inherit from those of all kinds",
            new()
                .in_all_others(fields("others=1"))
                .for_kind::<ConfigMap>(KindOptions::new().in_all_others(labels("kind others"))),
            Scope::Cluster,
            "kind others|others=1|0|false",
        ),
        (
            "options for another kind say nothing",
            new()
                .selected(labels("all"))
                .for_kind::<Node>(own(labels("nodes"))),
            red(),
            "all||0|false",
        ),
        (
            "options by name and by type are the same",
            new().for_gvk(
                GroupVersionKind::gvk("", "v1", "ConfigMap"),
                own(labels("by name")),
            ),
            red(),
            "by name||0|false",
        ),
        (
            "said again, they replace what was said",
            new()
                .for_kind::<ConfigMap>(own(labels("first")))
                .for_kind::<ConfigMap>(own(fields("second=1"))),
            red(),
            "|second=1|0|false",
        ),
    ] {
        assert_eq!(outcome(&options, &maps(), &scope), wanted, "{case}");
    }
}

#[test]
fn a_kind_without_namespaces_has_no_entries_and_may_not_name_any() {
    let nodes = Kind::of::<Node>();
    let options = CacheOptions::new()
        .selected(labels("all"))
        .in_namespace("red", labels("entry"))
        .in_all_others(labels("others"));
    let resolved = resolve(&options, &nodes, &Scope::Cluster, &["red".into()].into()).unwrap();
    assert_eq!(resolved.selection.labels, "all");
    assert_eq!(resolved.selection.fields, "", "no namespaces to leave out");
    for own in [
        KindOptions::new().in_namespace("red", Selected::new()),
        KindOptions::new().in_all_others(Selected::new()),
    ] {
        let options = CacheOptions::new().for_kind::<Node>(own);
        let error = options.validate().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the cache options of Node (v1) name namespaces, and the kind has none: remove in_namespace and \
             in_all_others from its KindOptions; a label or field selector chooses among its objects"
        );
    }
    let every = KindOptions::new().in_every_namespace();
    CacheOptions::new()
        .for_kind::<Node>(every)
        .validate()
        .unwrap();
    // For a kind by name this is known when it is watched.
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let widget = Kind::cluster_scoped(ApiResource::from_gvk_with_plural(&gvk, "widgets"));
    let own = KindOptions::new().in_namespace("red", Selected::new());
    let options = CacheOptions::new().for_gvk(gvk, own);
    options.validate().unwrap();
    assert!(options.validate_for(&widget).is_err());
}

#[test]
fn the_others_leave_out_those_that_are_watched_by_themselves() {
    let named: BTreeSet<Arc<str>> = ["blue".into(), "red".into()].into();
    for (case, options, wanted) in [
        (
            "nothing else",
            CacheOptions::new(),
            "metadata.namespace!=blue,metadata.namespace!=red",
        ),
        (
            "and what is configured",
            CacheOptions::new().selected(fields(r"a=x\,y,b!=2")),
            r"a=x\,y,b!=2,metadata.namespace!=blue,metadata.namespace!=red",
        ),
    ] {
        let resolved = resolve(&options, &maps(), &Scope::Cluster, &named).unwrap();
        assert_eq!(resolved.selection.fields, wanted, "{case}");
        let one = resolve(&options, &maps(), &red(), &named).unwrap();
        assert!(
            !one.selection.fields.contains("metadata.namespace"),
            "{case}"
        );
    }
}

#[test]
fn a_field_selector_that_names_a_namespace_is_a_path() {
    for (selector, scope, named, wanted) in [
        ("metadata.namespace=red", Scope::Cluster, false, (red(), "")),
        (
            "a=1,metadata.namespace==red,b=2",
            Scope::Cluster,
            false,
            (red(), "a=1,b=2"),
        ),
        (
            "metadata.namespace!=red",
            Scope::Cluster,
            false,
            (Scope::Cluster, "metadata.namespace!=red"),
        ),
        // Nothing is both.
        (
            "metadata.namespace=blue",
            red(),
            false,
            (red(), "metadata.namespace=blue"),
        ),
        (
            "metadata.namespace=blue",
            Scope::Cluster,
            true,
            (
                Scope::Cluster,
                "metadata.namespace=blue,metadata.namespace!=red",
            ),
        ),
    ] {
        let options = CacheOptions::new().selected(fields(selector));
        let others = named.then(|| Arc::from("red")).into_iter().collect();
        let resolved = resolve(&options, &maps(), &scope, &others).unwrap();
        let Selection { scope, fields, .. } = resolved.selection;
        assert_eq!((scope, &*fields), wanted, "{selector}");
    }
}

#[test]
fn selectors_and_names_that_cannot_be_read_are_named_with_whose_they_are() {
    let of_maps = |own: KindOptions| CacheOptions::new().for_kind::<ConfigMap>(own);
    for (options, wanted) in [
        (
            CacheOptions::new().selected(labels("app=web,,tier")),
            "the cache options of all kinds have the label selector \"app=web,,tier\": expected the name of a label, \
             found \",tier\"",
        ),
        (
            of_maps(KindOptions::new().labels("app=wéb")),
            "the cache options of ConfigMap (v1) have the label selector \"app=wéb\": \"wéb\" is not a valid label value",
        ),
        (
            of_maps(KindOptions::new().labels("app in (a,b")),
            "the cache options of ConfigMap (v1) have the label selector \"app in (a,b\": expected a ) after the \
             values of \"app\"",
        ),
        (
            of_maps(KindOptions::new().in_namespace("red", labels("a b"))),
            "the cache options of ConfigMap (v1) have the label selector \"a b\": expected a comma after \"a\", found \
             \"b\"",
        ),
        (
            CacheOptions::new().in_all_others(fields("status.phase")),
            "the cache options of all kinds have the field selector \"status.phase\": \"status.phase\" is not a term of a \
             field selector: expected =, == or !=, as in status.phase!=Running",
        ),
        (
            CacheOptions::new().in_namespace("", Selected::new()),
            "the cache options of all kinds name the namespace \"\", which is not a valid name",
        ),
        (
            CacheOptions::new().in_namespace("Red", Selected::new()),
            "the cache options of all kinds name the namespace \"Red\", which is not a valid name",
        ),
        (
            of_maps(
                KindOptions::new()
                    .form(StoreForm::Compact)
                    .transform_metadata(|_| {}),
            ),
            "the cache options of ConfigMap (v1) store Compact and have a transform, which needs the object decoded: \
             store it as StoreForm::Typed, skip paths instead, or set no_transform for it",
        ),
        (
            of_maps(
                KindOptions::new()
                    .form(StoreForm::Metadata)
                    .transform(|_: &mut ConfigMap| {}),
            ),
            "the cache options of ConfigMap (v1) store Metadata and have a transform, which needs the object decoded: \
             store it as StoreForm::Typed, skip paths instead, or set no_transform for it",
        ),
    ] {
        assert_eq!(options.validate().unwrap_err().to_string(), wanted);
    }
    for selector in [
        "",
        "a",
        "!a",
        "a=b",
        "a == b",
        "a!=b,c",
        "x.io/a in (b, c),!d",
        "a notin (b)",
        "in in (in)",
        "a=",
    ] {
        assert!(label_selector::parse(selector).is_ok(), "{selector}");
    }
    let options = of_maps(KindOptions::new().form(StoreForm::Metadata))
        .selected(Selected::new().transform_metadata(|_: &mut ObjectMeta| {}));
    options.validate().unwrap();
}

#[test]
fn form_and_resync_are_those_of_the_kind_before_those_of_all() {
    let hour = Duration::from_secs(3600);
    let options = CacheOptions::new().form(StoreForm::Compact).resync(hour);
    assert_eq!(options.form_of(&maps()), Some(StoreForm::Compact));
    assert_eq!(options.resync_of(&maps()), Some(hour));
    let never = CacheOptions::new().resync(Duration::MAX);
    let never = never.resync_of(&maps()).unwrap();
    assert!(never < Duration::MAX / 2, "it is lengthened by chance");
    let own = KindOptions::new()
        .form(StoreForm::Typed)
        .resync(Duration::ZERO);
    let options = options.for_kind::<ConfigMap>(own);
    assert_eq!(options.form_of(&maps()), Some(StoreForm::Typed));
    assert_eq!(options.resync_of(&maps()), None, "said to be never");
    let own = KindOptions::new().transform(|_: &mut ConfigMap| {});
    let options = options.for_kind::<ConfigMap>(own);
    assert_eq!(
        options.form_of(&maps()),
        Some(StoreForm::Typed),
        "a change of the type needs the type"
    );
}
