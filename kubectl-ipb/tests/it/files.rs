//! check, import and export.

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
    assert_eq!(head, "ip,duration,reason,source,by");
    assert!(
        row.starts_with("192.0.2.7,forever,\"a, \"\"b\"\"\",manual,"),
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
