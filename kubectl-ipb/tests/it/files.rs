//! check, import and export.

use std::collections::BTreeMap;

use ipblock_operator::api::{self, BlockList, BlockListSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{ListParams, PostParams};

use super::world::{World, steady};

#[tokio::test]
async fn each_line_of_a_file_is_banned_refused_free_or_invalid() {
    let world = World::new().await;
    world.ok("ban 192.0.2.0/24 --wait").await;
    let name = ipblock_operator::target::object_name("192.0.2.0/24");
    let file = world.file(
        "list",
        "# mine\n192.0.2.7\n203.0.113.10 # office\n192.0.3.1\nexample.com\n",
    );
    let output = world.ipb(&format!("check {file}")).await;
    assert_eq!(output.code, Some(1));
    let lines = steady(&output.text);
    let lines: Vec<String> = lines
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines[..4],
        [
            "LINE ADDRESS VERDICT DETAIL".to_owned(),
            format!("2 192.0.2.7 banned until TIME (in SPAN), by default/{name} (192.0.2.0/24)"),
            "3 203.0.113.10 refused 203.0.113.10 is allowlisted (whitelist, line 2); to ban it, remove the entry from whitelist".to_owned(),
            "4 192.0.3.1 free".to_owned(),
        ]
    );
    assert!(
        lines[4].starts_with("5 example.com invalid \"example.com\" is neither"),
        "{lines:?}"
    );
    let free = world
        .ipb_with("check - -o json", "192.0.3.1\n192.0.2.9\n")
        .await;
    assert_eq!(free.code, Some(0), "{free:?}");
    let free: serde_json::Value = serde_json::from_str(&free.text).unwrap();
    assert_eq!(
        (&free[0]["verdict"], &free[1]["verdict"]),
        (&"free".into(), &"banned".into())
    );
    world
        .refused("check /nowhere/list", "cannot read /nowhere/list")
        .await;
}

#[tokio::test]
async fn an_import_makes_blocks_and_names_the_lines_it_refuses() {
    let world = World::new().await;
    world.ok("ban 192.0.2.7 --for 10m --wait").await;
    let text = "192.0.2.7,1h,known\n192.0.2.8,2h,scan\n192.0.2.8,2h,again\n203.0.113.10,1h,office\n192.0.2.999,1h,x\n192.0.2.10,forever,\n";
    let file = world.file("bans.csv", text);
    let dry = world.ipb(&format!("import {file} --dry-run")).await;
    assert_eq!(
        dry.text,
        "6 entries: 2 created, 1 unchanged, 1 repeated, 2 refused (server dry run)\n"
    );
    let fresh = ipblock_operator::target::object_name("192.0.2.8");
    assert!(world.blocks().get_opt(&fresh).await.unwrap().is_none());
    let output = world.ipb(&format!("import {file}")).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(
        output.text,
        "6 entries: 2 created, 1 unchanged, 1 repeated, 2 refused\n"
    );
    let mut errors = output.errors.lines();
    assert_eq!(
        errors.next(),
        Some(
            "line 4: 203.0.113.10 is allowlisted (whitelist, line 2); to ban it, remove the entry from whitelist"
        )
    );
    assert!(
        errors
            .next()
            .unwrap()
            .starts_with("line 5: \"192.0.2.999\" is neither")
    );
    let block = world.blocks().get(&fresh).await.unwrap();
    assert_eq!(block.spec.duration.as_deref(), Some("2h"));
    assert_eq!(block.spec.reason.as_deref(), Some("scan"));
    assert_eq!(block.spec.source.as_deref(), Some("import"));
    let again = world
        .ipb_with("import - --source feed --extend --for 1d", "192.0.2.7\n")
        .await;
    assert_eq!(
        (again.code, again.text.as_str()),
        (Some(0), "1 entries: 0 created, 1 extended\n")
    );
    world
        .refused("import /nowhere", "cannot read /nowhere")
        .await;
    let wrong = world.ipb_with("import - --format json", "[").await;
    assert!(
        wrong.errors.contains("error: -: it is not JSON"),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn many_entries_are_imported_at_once_and_what_is_exported_can_be_imported() {
    let world = World::new().await;
    let text: String = (0..200)
        .map(|n| format!("198.18.{}.{}\n", n / 250, n % 250))
        .collect();
    let imported = world
        .ipb_with("import - --for 1h --concurrency 16", &text)
        .await;
    assert_eq!(imported.text, "200 entries: 200 created\n", "{imported:?}");
    world
        .ok("ban 192.0.2.7 --for forever --reason 'a, \"b\"' --tag x --wait")
        .await;
    // The operator bans them one after another.
    loop {
        let active = world.ok("export").await;
        if active.lines().count() == 201 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let csv = world.ok("export --address 192.0.2.7 -o csv").await;
    let (head, row) = csv.split_once('\n').unwrap();
    assert_eq!(head, "ip,duration,until,reason,source,by");
    assert!(
        row.starts_with("192.0.2.7,forever,,\"a, \"\"b\"\"\",manual,"),
        "{row}"
    );
    for format in ["plain", "csv", "json"] {
        let exported = world.ok(&format!("export -o {format}")).await;
        let back = world.ipb_with("import - -n web", &exported).await;
        let wanted = if format == "plain" {
            "201 created"
        } else {
            "201 unchanged"
        };
        assert_eq!(
            (back.code, back.text),
            (
                Some(0),
                format!(
                    "201 entries: {}\n",
                    wanted.replace("201 unchanged", "0 created, 201 unchanged")
                )
            ),
            "{format}: {}",
            back.errors
        );
        loop {
            let active = world.ok("export -n web").await;
            if active.lines().count() == 201 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    let expired = world.ok("export --phase expired").await;
    assert_eq!(expired, "");
}

impl World {
    fn lists(&self) -> Api<BlockList> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Installs the kind of lists.
    async fn with_lists() -> Self {
        let world = Self::new().await;
        let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
        let [_, lists] = api::crds();
        let create = PostParams::default();
        definitions.create(&create, &lists).await.unwrap();
        while world.lists().list(&ListParams::default()).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        world
    }

    /// The lists by name: their versions, and the targets of their entries.
    async fn entries(&self) -> BTreeMap<String, (String, Vec<String>)> {
        let lists = self.lists().list(&ListParams::default()).await.unwrap();
        let lists = lists.items.into_iter().map(|list| {
            let entries = list.spec.entries.into_iter().map(|entry| entry.target);
            let version = list.metadata.generation.unwrap().to_string();
            (list.metadata.name.unwrap(), (version, entries.collect()))
        });
        lists.collect()
    }
}

#[tokio::test]
async fn an_import_as_lists_follows_its_file_and_the_same_file_again_changes_nothing() {
    let world = World::with_lists().await;
    let text = "ip,until,reason\n192.0.2.7,2999-01-01T00:00:00Z,scan\n192.0.2.8,2999-01-01T00:00:00.2Z,\n192.0.2.8,,\n203.0.113.10,,office\n2001:db8::/48,,\n";
    let file = world.file("bans.csv", text);
    let line = format!("import {file} --as-list feed --for 1d --source partner");
    let dry = world.ipb(&format!("{line} --dry-run")).await;
    let summary = "5 entries: 3 added, 1 repeated, 1 refused; lists: 1 created";
    assert_eq!(dry.text, format!("{summary} (server dry run)\n"), "{dry:?}");
    assert!(world.entries().await.is_empty());
    let first = world.ipb(&line).await;
    assert_eq!(
        (first.code, &*first.text),
        (Some(1), &*format!("{summary}\n"))
    );
    assert!(first.errors.contains("line 5: 203.0.113.10 is allowlisted"));
    let list = world.lists().get("feed-0").await.unwrap();
    assert_eq!(list.spec.source.as_deref(), Some("partner"));
    let one = &list.spec.entries[0];
    assert_eq!(one.until.as_deref(), Some("2999-01-01T00:00:00Z"));
    assert_eq!(one.reason.as_deref(), Some("scan"));
    let two = &list.spec.entries[1];
    assert_eq!(two.until.as_deref(), Some("2999-01-01T00:00:01Z"));
    let before = world.entries().await;
    assert_eq!(
        before["feed-0"].1,
        ["192.0.2.7", "192.0.2.8", "2001:db8::/48"]
    );
    let again = world.ipb(&line).await;
    assert!(again.text.contains("0 added, 3 unchanged"), "{again:?}");
    assert!(
        again.text.ends_with("lists: none is changed\n"),
        "{again:?}"
    );
    assert_eq!(world.entries().await, before);
    assert!(
        world
            .blocks()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    // What left the file leaves the list.
    let less = world
        .ipb_with(
            "import - --as-list feed --source partner",
            "192.0.2.8\n192.0.2.9\n",
        )
        .await;
    assert_eq!(
        less.text,
        "2 entries: 1 added, 1 unchanged, 2 not in the file any more and removed; lists: 1 changed\n"
    );
    assert_eq!(
        world.entries().await["feed-0"].1,
        ["192.0.2.8", "192.0.2.9"]
    );
    // A rule that refuses an entry leaves it in its list.
    world.configure(&[("whitelist", "192.0.2.8")]).await;
    let ruled = world
        .ipb_with(
            "import - --as-list feed --source partner",
            "192.0.2.8\n192.0.2.9\n",
        )
        .await;
    let text = "2 entries: 0 added, 2 unchanged, 1 refused; lists: none is changed\n";
    assert_eq!(ruled.text, text, "{ruled:?}");
}

#[tokio::test]
async fn a_file_without_a_ban_removes_nothing_and_lists_of_others_are_not_taken() {
    let world = World::with_lists().await;
    let many: String = (0..5_001)
        .map(|n| format!("11.0.{}.{}\n", n / 250, n % 250))
        .collect();
    let import = "import - --as-list feed --for forever";
    let first = world.ipb_with(import, &many).await;
    assert_eq!(
        first.text, "5001 entries: 5001 added; lists: 2 created\n",
        "{first:?}"
    );
    let before = world.entries().await;
    assert_eq!(
        (before["feed-0"].1.len(), before["feed-1"].1.len()),
        (5_000, 1)
    );
    for (text, part) in [
        (
            "# nothing\n",
            "the file has nothing to ban, so the 5001 bans of the lists feed stay",
        ),
        (
            "<html>\nbad gateway\n192.0.2.7\n",
            "has more refused entries (2) than bans (1)",
        ),
    ] {
        let refused = world.ipb_with(import, text).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.errors.contains(part), "{refused:?}");
        assert!(refused.errors.contains("-l ops.yiiong.top/import=feed"));
        assert_eq!(world.entries().await, before);
    }
    let short = world.ipb_with(import, "11.0.0.0\n").await;
    assert_eq!(short.code, Some(1), "{short:?}");
    let part = "the file lacks 5000 of the 5001 bans of the lists feed";
    assert!(short.errors.contains(part), "{short:?}");
    assert_eq!(world.entries().await, before);
    let forced = format!("{import} --force");
    let one = world.ipb_with(&forced, "11.0.0.0\n").await;
    assert!(
        one.text.ends_with("; lists: 1 changed, 1 deleted\n"),
        "{one:?}"
    );
    assert_eq!(world.entries().await.len(), 1);
    // A list that another client made.
    let other = BlockList::new("other-0", BlockListSpec::default());
    world
        .lists()
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    let taken = world
        .ipb_with("import - --as-list other", "192.0.2.7\n")
        .await;
    assert!(
        taken
            .errors
            .contains("default/other-0 is not of this import"),
        "{taken:?}"
    );
}

#[tokio::test]
async fn without_the_kind_of_lists_an_import_says_what_to_apply() {
    let world = World::new().await;
    let output = world
        .ipb_with("import - --as-list feed", "192.0.2.7\n")
        .await;
    assert_eq!(output.code, Some(1));
    assert!(output.errors.contains("no BlockList kind"), "{output:?}");
}
