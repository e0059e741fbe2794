//! The code in the tables of the guides compiles, because it is repeated here. The `Cargo.toml` of the guides names the
//! versions of this workspace.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::PartialObjectMeta;
use reeve_controller::cache::{Kind, View};
use reeve_controller::client::{ApplyOptions, connect};
use reeve_controller::controller::Defaults;
use reeve_controller::handler::for_object;
use reeve_controller::reconcile::{self, Error};
use reeve_controller::{
    Cluster, Context, Controller, Manager, Outcome, Request, controller, handler, leader_election,
    source,
};

const GUIDE: &str = include_str!("../../guide/controller.md");
const FROM_CONTROLLER_RUNTIME: &str = include_str!("../../guide/from-controller-runtime.md");

type K = ConfigMap;
type T = ConfigMap;

fn reconciler() -> impl reconcile::Reconciler {
    reconcile::function(|_: Context, _: Request| async {
        Err::<Outcome, _>(Error::outage("the gateway is down"))
    })
}

#[allow(
    dead_code,
    reason = "the code is only compiled, and compared with the guides"
)]
async fn code(ctx: Context, client: kube_client::Client) -> Result<(), Box<dyn StdError>> {
    let manager = Manager::builder(connect::infer(&connect::Options::new()).await?)
        .leader_election(leader_election::Options::new("namespace", "name"))
        .health_address(([0, 0, 0, 0], 8081).into())
        .metrics_address(([0, 0, 0, 0], 8080).into())
        .controllers(Defaults::new().group_kind_concurrency("ConfigMap", 8))
        .build()
        .await?;
    let cluster = manager.add_cluster(Cluster::builder("edge", client))?;

    let (handler, period, request) = (for_object(), Duration::MAX, Request::cluster("sweep"));
    let (_sender, requests) = source::channel::<Request>(16);
    let view = View::<ConfigMap>::typed();
    let many = Controller::builder("many")
        .for_kind::<ConfigMap>()
        .watches::<K>(handler)
        .optional()
        .watches::<K>(handler::prioritized(10, handler))
        .watches_view(View::<PartialObjectMeta<K>>::metadata(), handler)
        .watches_in(&cluster, view, handler)
        .watches_source(requests)
        .watches_source(source::every(period, request))
        .warm_up(true)
        .rate_limiter(reeve_workqueue::default_controller_rate_limiter())
        .workers(8)
        .reconcile_timeout(Duration::from_secs(60))
        .min_interval(Duration::from_secs(30))
        .max_retries(5, |request, error| tracing::info!("{request}: {error}"))
        .complete(reconciler())?;
    let handle = manager.add_controller(many)?;
    let watch = handle.watch(controller::Watch::new(View::<K>::typed(), handler))?;
    watch.remove().await;
    let _guard = watch.remove_on_drop();
    handle.stop().await;
    let kind = &Kind::of::<K>();
    manager.caches().remove_index(kind, "by-node");

    let kind = Kind::of::<ConfigMap>();
    let dynamic = Controller::builder("dynamic").for_view(View::dynamic(&kind));
    manager.add_controller(dynamic.complete(reconciler())?)?;
    let metadata = View::<PartialObjectMeta<T>>::metadata();
    let metadata = Controller::builder("metadata").for_view(metadata);
    manager.add_controller(metadata.complete(reconciler())?)?;

    tracing::info!(deadline = ?ctx.deadline(), most = ?controller::OUTAGE_BACK_OFF);
    let wanted = ConfigMap::default();
    ctx.client()
        .apply(&wanted, ApplyOptions::new("greeter").force())
        .await?;
    manager.run_until_signal().await?;
    Ok(())
}

/// The text without white space and without the additions of rustfmt.
fn plain(text: &str) -> String {
    let text: String = text.split_whitespace().collect();
    text.replace(",)", ")")
}

/// The code between backticks.
fn spans(text: &str) -> impl Iterator<Item = String> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.map(|span| span.replace("\\|", "|"))
}

/// The functions with the code of the guides, without imports and tests.
fn code_of(file: &str) -> &str {
    let (_, rest) = file.split_once("\nfn reconciler(").unwrap();
    let (code, _) = rest.split_once("\n/// ").unwrap();
    code
}

#[test]
fn only_the_functions_count_as_code_of_the_guides() {
    let file = "use a::b;\nfn reconciler() {}\nasync fn code() {}\n/// No code.\nfn d() {}\n";
    assert_eq!(code_of(file), ") {}\nasync fn code() {}");
}

fn expect(span: &str) {
    let code = plain(code_of(include_str!("guides.rs")));
    // Three dots stand for omitted code.
    for part in span.split('…') {
        assert!(code.contains(&plain(part)), "{span} is not in guides.rs");
    }
}

#[test]
fn the_code_in_the_tables_of_the_guides_compiles() {
    let (_, rest) = GUIDE.split_once("## From here to a cluster").unwrap();
    let (table, _) = rest.split_once("\n## ").unwrap();
    let mut expected = 0;
    for row in table.lines().filter(|line| line.starts_with('|')) {
        // Environment variables and features are not code.
        let code = spans(row).filter(|span| !span.contains('=') && span != "testing");
        for span in code.filter(|span| span != "reeve_controller::testing") {
            expect(&span);
            expected += 1;
        }
    }
    assert!(expected > 20, "{expected}");
    // The listings after the names are checked below.
    let (names, _) = FROM_CONTROLLER_RUNTIME.split_once("\n## The port").unwrap();
    for guide in [GUIDE, names] {
        let views: Vec<String> = spans(guide)
            .filter(|span| span.contains("View::<"))
            .collect();
        assert!(!views.is_empty());
        views.iter().for_each(|span| expect(span));
    }
}

/// The first pages of crates and guides. Each has the dependencies that its code needs.
const FIRST_PAGES: [&str; 15] = [
    "apiserver/README.md",
    "client/README.md",
    "controller/README.md",
    "controller/guide/controller.md",
    "controller/guide/from-controller-runtime.md",
    "controller/guide/from-kube-rs.md",
    "controller/guide/small-programs.md",
    "controller/guide/tutorial/README.md",
    "election/README.md",
    "informer/README.md",
    "informer/guide/from-client-go.md",
    "serve/README.md",
    "webhook/README.md",
    "workqueue/README.md",
    "workqueue/guide/queue.md",
];

/// The blocks of a page in one language, without the lines that readers do not see.
fn blocks<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = String> + 'a {
    let blocks = page.split("```").skip(1).step_by(2);
    let of_language = blocks.filter_map(move |block| {
        let (name, text) = block.split_once('\n')?;
        // `rust,ignore` is a part of a file.
        let plain = name.strip_suffix(",no_run").unwrap_or(name);
        (plain == language).then_some(text)
    });
    of_language.map(|text| {
        let seen = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("# "));
        seen.collect::<Vec<_>>().join("\n")
    })
}

/// The names of the lines of a `Cargo.toml` with a dependency, each with its version.
fn dependencies(block: &str) -> impl Iterator<Item = (&str, &str)> {
    block.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" = ")?;
        let rest = rest.split_once("version = ").map_or(rest, |(_, rest)| rest);
        let version = rest.strip_prefix('"')?.split('"').next()?;
        Some((name, version.trim_start_matches(['=', '~', '^'])))
    })
}

/// Whether `code` names a crate at the beginning of a path.
fn names_crate(code: &str, name: &str) -> bool {
    let name = name.replace('-', "_");
    // A re-export, which the rest of the code uses by its name.
    let imported = code.contains(&format!("::{name}::")) || code.contains(&format!("::{name};"));
    let begins = |at: usize| {
        let before = code[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && !"_:".contains(before))
    };
    !imported
        && code
            .match_indices(&format!("{name}::"))
            .any(|(at, _)| begins(at))
}

#[test]
fn a_crate_counts_where_its_name_begins_a_path() {
    for (code, expected) in [
        ("use serde_json::json;", true),
        ("#[tokio::main]\nserde_json::json!(1)", true),
        (
            "use reeve_controller::serde_json::json;\nserde_json::to_vec(1)",
            false,
        ),
        ("my_serde_json::json!(1)", false),
    ] {
        assert_eq!(names_crate(code, "serde-json"), expected, "{code}");
    }
    let block =
        "[dependencies]\nserde = { version = \"1\", features = [\"derive\"] }\nurl = \"=2\"\n";
    assert!(dependencies(block).eq([("serde", "1"), ("url", "2")]));
    let page = "a\n```rust,no_run\n# hidden\nb\n```\n```toml\nc\n```\n```rust,ignore\nd\n```\n";
    assert!(blocks(page, "rust").eq(["b"]) && blocks(page, "toml").eq(["c"]));
}

#[test]
fn every_first_page_names_the_crates_of_its_code_in_the_versions_of_this_workspace() {
    // A package is without the workspace.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
    let workspace = std::fs::read_to_string(format!("{root}Cargo.toml")).unwrap_or_default();
    let Some((_, declared)) = workspace.split_once("[workspace.dependencies]\n") else {
        return;
    };
    let (declared, _) = declared.split_once("\n[").unwrap();
    let declared: BTreeMap<_, _> = dependencies(declared).collect();
    assert!(declared.len() > 30);
    for page in FIRST_PAGES {
        let text = std::fs::read_to_string(format!("{root}{page}")).unwrap();
        let manifests: Vec<String> = blocks(&text, "toml").collect();
        let named: Vec<_> = manifests
            .iter()
            .flat_map(|block| dependencies(block))
            .collect();
        let own = page.split('/').next().unwrap();
        let own = format!("reeve-{own}");
        assert!(
            named.iter().any(|(name, _)| *name == own),
            "{page} lacks {own}"
        );
        for (name, version) in &named {
            // Of the tutorial's own package.
            let Some(known) = declared.get(name) else {
                assert!(
                    ["name", "version", "edition"].contains(name),
                    "{page}: {name}"
                );
                continue;
            };
            assert!(
                known.starts_with(version),
                "{page}: {name} {version} is {known} here"
            );
        }
        for code in blocks(&text, "rust") {
            for name in declared.keys().filter(|name| names_crate(&code, name)) {
                let found = named.iter().any(|(named, _)| named == name);
                assert!(
                    found,
                    "{page} has code with {name}, and no line for Cargo.toml"
                );
            }
        }
    }
}

/// The listings of a page that are parts of files, each with the file that the comment before it names.
fn listings(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = page.split("\n```rust,ignore");
    let blocks = blocks.clone().skip(1).zip(blocks);
    blocks.map(|(block, before)| {
        let (_, code) = block.split_once('\n').unwrap();
        let (code, _) = code.split_once("\n```").unwrap();
        let named = before.lines().next_back().unwrap_or_default();
        let file = named
            .strip_prefix("<!-- ")
            .and_then(|rest| rest.strip_suffix(" -->"));
        (
            file.unwrap_or_else(|| panic!("no file is named before\n{code}")),
            code,
        )
    })
}

/// Whether `code` is a part of `file`, perhaps further to the right.
fn is_part_of(code: &str, file: &str) -> bool {
    (0..=16).step_by(4).any(|indent| {
        let indented = code.lines().map(|line| match line {
            "" => String::new(),
            line => format!("{:indent$}{line}", ""),
        });
        let indented: Vec<_> = indented.collect();
        format!("\n{file}").contains(&format!("\n{}\n", indented.join("\n")))
    })
}

#[test]
fn a_listing_is_a_part_of_its_file_only_as_a_whole() {
    let file = "fn a() {\n    b();\n\n    c();\n}\n";
    for (code, expected) in [
        ("b();\n\nc();", true),
        ("    b();", true),
        ("b();\nc();", false),
        ("fn a()", false),
        ("c();\n}", false),
    ] {
        assert_eq!(is_part_of(code, file), expected, "{code}");
    }
    let page = "text\n<!-- x.rs -->\n```rust,ignore\nb();\n```\n<!-- y.rs -->\n```rust,ignore\nc();\n```\n```rust\nd();\n```\n";
    assert!(listings(page).eq([("x.rs", "b();"), ("y.rs", "c();")]));
}

#[test]
fn the_listings_of_the_guides_are_parts_of_their_files() {
    // A package is without the workspace.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
    if !std::path::Path::new(root).join("examples/ported").exists() {
        return;
    }
    let read = |path: &str| std::fs::read_to_string(format!("{root}{path}")).unwrap();
    for page in [
        "controller/guide/from-kube-rs.md",
        "controller/guide/from-controller-runtime.md",
        "informer/guide/from-client-go.md",
        "controller/guide/servers.md",
    ] {
        let mut count = 0;
        for (file, code) in listings(&read(page)) {
            assert!(
                is_part_of(code, &read(file)),
                "{page}: not in {file}:\n{code}"
            );
            count += 1;
        }
        assert!(count >= 3, "{page} has {count} listings");
    }
}
