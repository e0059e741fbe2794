//! The code in the tables of the guides compiles, because it is repeated here. The `Cargo.toml` of the guides names the
//! versions of this workspace.

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

#[test]
fn the_versions_that_the_guide_names_are_those_of_this_workspace() {
    // A package is without the workspace.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let workspace = std::fs::read_to_string(path).unwrap_or_default();
    if !workspace.contains("[workspace.dependencies]") {
        return;
    }
    let (_, rest) = GUIDE.split_once("```toml\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let version = |line: &str| {
        let rest = line
            .split_once("version = \"")
            .or_else(|| line.split_once("= \""))?;
        let text = rest.1.split('"').next()?;
        Some(text.trim_start_matches(['=', '~', '^']).to_owned())
    };
    let mut named = 0;
    for line in block.lines().filter(|line| line.contains(" = ")) {
        let name = line.split(' ').next().unwrap();
        let mut declared = workspace
            .lines()
            .filter(|line| !line.contains("workspace = true"));
        let known = declared.find(|line| line.starts_with(&format!("{name} = ")));
        let known = known.unwrap_or_else(|| panic!("{name} is not in the workspace"));
        let (said, known) = (version(line).unwrap(), version(known).unwrap());
        assert!(
            known.starts_with(&said),
            "{name}: {said} here, {known} there"
        );
        named += 1;
    }
    assert!(named >= 7, "{named}");
}

/// The listings of a page, each with the file that the comment before it names.
fn listings(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = page.split("\n```rust").skip(1).zip(page.split("\n```rust"));
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
    let page =
        "text\n<!-- x.rs -->\n```rust,ignore\nb();\n```\n<!-- y.rs -->\n```rust\nc();\n```\n";
    assert!(listings(page).eq([("x.rs", "b();"), ("y.rs", "c();")]));
}

#[test]
fn the_listings_of_the_ported_examples_are_parts_of_their_files() {
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
    ] {
        let mut count = 0;
        for (file, code) in listings(&read(page)) {
            assert!(
                is_part_of(code, &read(file)),
                "{page}: not in {file}:\n{code}"
            );
            count += 1;
        }
        assert!(count >= 5, "{page} has {count} listings");
    }
}
