//! The packages as crates.io and docs.rs show them, and the features that docs/compatibility.md lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The output of `cargo metadata`.
fn metadata(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version=1"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn texts(value: &Value) -> Vec<&str> {
    let texts = value.as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).collect()
}

/// The packages of the workspace that can be published.
fn published(metadata: &Value) -> Vec<&Value> {
    let members: BTreeSet<&str> = texts(&metadata["workspace_members"]).into_iter().collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let published = packages.filter(|package| {
        members.contains(package["id"].as_str().unwrap()) && package["publish"].is_null()
    });
    published.collect()
}

#[test]
fn every_published_package_has_what_its_pages_show() {
    let metadata = metadata(&["--no-deps"]);
    let packages = published(&metadata);
    assert!(packages.len() >= 15, "{}", packages.len());
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent();
        let folder = folder.unwrap();
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        assert!(text("description").len() > 20, "{name}: description");
        assert_eq!(text("license"), "Apache-2.0", "{name}");
        assert_eq!(text("documentation"), format!("https://docs.rs/{name}"));
        assert_eq!(text("readme"), "README.md", "{name}");
        for file in ["README.md", "LICENSE"] {
            assert!(folder.join(file).is_file(), "{name} has no {file}");
        }
        // crates.io takes no more than five of each.
        for list in ["keywords", "categories"] {
            let listed = texts(&package[list]).len();
            assert!((1..=5).contains(&listed), "{name} has {listed} {list}");
        }
        let arguments = &package["metadata"]["docs"]["rs"]["rustdoc-args"];
        assert_eq!(texts(arguments), ["--cfg", "docsrs"], "{name}: docs.rs");
        let features = package["features"].as_object().unwrap();
        let library = std::fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        let badges = library.contains("#![cfg_attr(docsrs, feature(doc_cfg))]");
        assert_eq!(
            badges,
            !features.is_empty(),
            "{name}: the badges of features"
        );
    }
}

/// The build script of k8s-openapi fails without a version, and docs.rs builds each package alone.
#[test]
fn docs_rs_chooses_a_version_of_kubernetes_where_a_package_needs_one() {
    let metadata = metadata(&["--filter-platform=x86_64-unknown-linux-gnu"]);
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let normal = |node: &Value| -> Vec<String> {
        let dependencies = node["deps"].as_array().unwrap().iter();
        let normal = dependencies.filter(|dependency| {
            let mut kinds = dependency["dep_kinds"].as_array().unwrap().iter();
            kinds.any(|kind| kind["kind"].is_null())
        });
        normal
            .map(|dependency| dependency["pkg"].as_str().unwrap().to_owned())
            .collect()
    };
    let graph: BTreeMap<&str, Vec<String>> = nodes
        .iter()
        .map(|node| (node["id"].as_str().unwrap(), normal(node)))
        .collect();
    let mut needs = 0;
    for package in published(&metadata) {
        let name = package["name"].as_str().unwrap();
        let mut found = BTreeSet::new();
        let mut next = vec![package["id"].as_str().unwrap().to_owned()];
        while let Some(id) = next.pop() {
            next.extend(
                graph[id.as_str()]
                    .iter()
                    .filter(|id| !found.contains(*id))
                    .cloned(),
            );
            found.insert(id);
        }
        let kubernetes = found.iter().any(|id| id.contains("#k8s-openapi@"));
        let docs = texts(&package["metadata"]["docs"]["rs"]["features"]);
        let direct = package["dependencies"].as_array().unwrap().iter();
        let mut direct = direct.filter(|one| one["kind"].is_null() && one["name"] == "k8s-openapi");
        let chosen = direct.clone().any(|one| {
            texts(&one["features"])
                .iter()
                .any(|feature| feature.starts_with("v1_"))
        });
        let features = &package["features"];
        let by_feature = docs.iter().any(|feature| {
            let of_package = texts(&features[*feature]);
            of_package
                .iter()
                .chain([feature])
                .any(|feature| feature.starts_with("k8s-openapi/v1_"))
        });
        assert!(
            !kubernetes || chosen || (by_feature && direct.next().is_some()),
            "docs.rs cannot build {name}: name a version of k8s-openapi in its metadata for docs.rs"
        );
        needs += u32::from(kubernetes);
    }
    assert!(needs >= 8, "{needs}");
}

#[test]
fn the_table_of_features_is_that_of_the_manifests() {
    let page = std::fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
    let (_, table) = page.split_once("\n## Features\n").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut listed = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let default = match cells[3] {
            "yes" => true,
            "no" => false,
            other => panic!("{row}: {other}"),
        };
        for name in cells[2].split(", ") {
            let package = match name {
                "operator" => "ipblock-operator".to_owned(),
                name => format!("reeve-{name}"),
            };
            listed.insert((cells[1].trim_matches('`').to_owned(), package, default));
        }
    }
    let metadata = metadata(&["--no-deps"]);
    let mut declared = BTreeSet::new();
    for package in published(&metadata) {
        let name = package["name"].as_str().unwrap();
        let features = package["features"].as_object().unwrap();
        let default = texts(&package["features"]["default"]);
        for feature in features.keys().filter(|feature| *feature != "default") {
            let default = default.contains(&feature.as_str());
            declared.insert((feature.clone(), name.to_owned(), default));
        }
    }
    let missing: Vec<_> = declared.difference(&listed).collect();
    let wrong: Vec<_> = listed.difference(&declared).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "missing: {missing:?}; wrong: {wrong:?}"
    );
}
