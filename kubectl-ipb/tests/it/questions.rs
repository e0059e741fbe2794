//! list, why, top and completions.

use ipblock_operator::api::BlockList;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use serde_json::Value;

use super::world::{World, steady};

fn name(ip: &str) -> String {
    ipblock_operator::target::object_name(ip)
}

#[tokio::test]
async fn a_list_is_filtered_sorted_and_printed_in_every_format() {
    let world = World::new().await;
    let empty = world.ipb("list").await;
    assert_eq!(
        (empty.code, empty.errors.as_str()),
        (Some(0), "No resources found in default namespace.\n")
    );
    world
        .ok("ban 192.0.2.7 --for 3h --reason scan --wait")
        .await;
    world
        .ok("ban 2001:db8::7 --for 1h --source feed --wait")
        .await;
    world.ok("ban 192.0.2.9 --for forever -n web --wait").await;
    world.ipb("ban 203.0.113.10 --wait").await;
    let (a, b, c, d) = (
        name("192.0.2.7"),
        name("2001:db8::7"),
        name("192.0.2.9"),
        name("203.0.113.10"),
    );
    let text = world.ok("list --sort-by address").await;
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        ["NAME", "IP", "PHASE", "EXPIRES", "SOURCE", "AGE", "REASON"]
    );
    assert_eq!(lines[1][..3], [a.as_str(), "192.0.2.7", "active"]);
    assert_eq!(lines[2][1..4], ["203.0.113.10", "skipped", "<none>"]);
    assert_eq!(lines[3][..3], [b.as_str(), "2001:db8::7", "active"]);
    let names = async |line: &str| {
        let text = world.ok(&format!("{line} -o name")).await;
        let lines = text.lines().map(|line| {
            line.trim_start_matches("ipblock.ops.yiiong.top/")
                .to_owned()
        });
        lines.collect::<Vec<String>>()
    };
    assert_eq!(
        names("list -A --sort-by expires").await,
        [&b, &a, &c, &d].map(String::clone)
    );
    assert_eq!(
        names("list -A --phase active --source manual --sort-by address").await,
        [a.clone(), c.clone()]
    );
    assert_eq!(
        names("list -A --address 192.0.2.0/24 --sort-by address").await,
        [a.clone(), c.clone()]
    );
    assert_eq!(names("list -n web").await, std::slice::from_ref(&c));
    let wide = world.ok("list -A -o wide").await;
    assert!(wide.starts_with("NAMESPACE   NAME"), "{wide}");
    assert!(wide.contains("is banned by dry-run until"), "{wide}");
    let json: Value = serde_json::from_str(&world.ok("list -o json").await).unwrap();
    assert_eq!(
        (
            json["kind"].as_str(),
            json["items"].as_array().unwrap().len()
        ),
        (Some("List"), 3)
    );
    assert_eq!(json["items"][0]["kind"], "IPBlock");
    assert!(json["items"][0]["metadata"]["managedFields"].is_null());
    let yaml = world.ok("list -o yaml --address 192.0.2.7").await;
    assert!(yaml.contains("ip: \"192.0.2.7\""), "{yaml}");
    let bare = world.ok("list --no-headers").await;
    assert!(!bare.contains("NAME"), "{bare}");
}

#[tokio::test]
async fn why_has_an_answer_for_every_state() {
    let world = World::new().await;
    let free = world.ok("why 192.0.2.7").await;
    assert_eq!(
        free,
        "192.0.2.7 is not banned\n  a ban would be accepted; the addresses of the cluster, which the operator protects by itself, are not checked here\n"
    );
    world
        .ok("ban 192.0.2.7 --reason scan --by alice --wait")
        .await;
    let single = name("192.0.2.7");
    assert_eq!(
        steady(&world.ok("why 192.0.2.7").await),
        format!(
            "192.0.2.7 is banned until TIME (in SPAN)\n  block default/{single} (192.0.2.7): active since TIME (SPAN ago) until TIME (in SPAN)\n    reason: scan\n    source manual, by alice, made with kubectl-ipb\n"
        )
    );
    world.ok("ban 192.0.2.0/24 --for 5h -n web --wait").await;
    let both = world.ok("why ::ffff:192.0.2.7").await;
    assert!(both.contains(&format!("block default/{single}")), "{both}");
    assert!(
        both.contains(&format!("block web/{}", name("192.0.2.0/24"))),
        "{both}"
    );
    let json: Value = serde_json::from_str(&world.ok("why 192.0.2.8 -o json").await).unwrap();
    assert_eq!(json["verdict"], "banned");
    assert_eq!(json["blocks"][0]["target"], "192.0.2.0/24");
    for (target, text) in [
        (
            "203.0.113.10",
            "203.0.113.10 is not banned: 203.0.113.10 is allowlisted (whitelist, line 2)",
        ),
        (
            "198.51.100.9",
            "inside the allowlisted range 198.51.100.0/24 (whitelist, line 3)",
        ),
        ("127.0.0.1", "it belongs to loopback"),
        (
            "192.0.0.0/16",
            "192.0.0.0/16 is not banned as a whole, and 2 blocks ban parts of it",
        ),
        ("172.16.0.0/12", "wider than /24"),
    ] {
        let answer = world.ok(&format!("why {target}")).await;
        assert!(answer.contains(text), "{target}: {answer}");
    }
    world.ipb("unban 192.0.2.7 --overlapping --wait").await;
    let lifted = world.ok("why 192.0.2.7").await;
    assert!(steady(&lifted).contains("its last ban was lifted by hand at TIME (SPAN ago); alerts leave it alone until TIME (in SPAN)"), "{lifted}");
}

#[tokio::test]
async fn lists_that_have_the_address_are_named_and_a_check_says_that_it_reads_none() {
    let world = World::new().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let [_, lists] = ipblock_operator::api::crds();
    let create = Default::default();
    definitions.create(&create, &lists).await.unwrap();
    let lists: Api<BlockList> = Api::namespaced(world.client.clone(), "web");
    while lists.list(&Default::default()).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let addresses = world.file("addresses", "192.0.2.7\n");
    let check = format!("check {addresses}");
    let note = "note: BlockLists are not checked, and an entry of one may ban an address (kubectl get ipbl -A)\n";
    assert_eq!(world.ipb(&check).await.errors, "");
    // More than one page.
    for n in 0..6 {
        let range = format!("192.0.{n}.0/24").parse().unwrap();
        let list = BlockList::of(&format!("feed-{n}"), [(range, None)]);
        lists.create(&create, &list).await.unwrap();
    }
    assert_eq!(world.ipb(&check).await.errors, note);
    for (address, part) in [
        ("192.0.2.7", "web/feed-2 has 192.0.2.0/24"),
        ("192.0.5.7", "web/feed-5 has 192.0.5.0/24"),
    ] {
        let answer = world.ok(&format!("why {address}")).await;
        let whole = format!(
            "no block bans {address}, and a BlockList has it\n  the BlockList {part} without end; "
        );
        assert!(answer.starts_with(&whole), "{answer}");
    }
    let range = world.ok("why 192.0.0.0/22").await;
    let inside = "web/feed-3 has 1 entry inside of 192.0.0.0/22; set engines ban it";
    assert!(range.contains(inside), "{range}");
    let none = world.ok("why 192.0.9.7").await;
    assert!(none.starts_with("192.0.9.7 is not banned\n"), "{none}");
    assert!(!none.contains("BlockList"), "{none}");
}

#[tokio::test]
async fn commands_about_blocks_say_that_lists_are_left_out_and_a_lift_names_those_that_ban_on() {
    let world = World::new().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let [_, lists] = ipblock_operator::api::crds();
    let create = Default::default();
    definitions.create(&create, &lists).await.unwrap();
    let lists: Api<BlockList> = Api::namespaced(world.client.clone(), "web");
    while lists.list(&Default::default()).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let mut list = BlockList::of("feed-0", [("192.0.2.0/24".parse().unwrap(), None)]);
    list.metadata.labels = Some(BlockList::labels_for("feed"));
    lists.create(&create, &list).await.unwrap();
    for command in ["list -A", "top", "export -A"] {
        let errors = world.ipb(command).await.errors;
        let left_out = "note: the entries of BlockLists are not ";
        assert!(errors.contains(left_out), "{command}: {errors}");
    }
    assert!(!world.ipb("list").await.errors.contains("BlockList"));
    let nothing = world.ipb("unban 192.0.2.7").await.errors;
    let has = "the BlockList web/feed-0 has 192.0.2.0/24 without end; set engines ban it, unless the status of the list says otherwise; the operator writes it for the source feed; ";
    let expected = format!("no block bans 192.0.2.7; {has}");
    assert!(nothing.contains(&expected), "{nothing}");
    world.ok("ban 192.0.2.7 --wait").await;
    let lifted = world.ipb("unban 192.0.2.7 --wait").await;
    let expected = format!("192.0.2.7 stays banned: {has}");
    assert!(lifted.errors.contains(&expected), "{}", lifted.errors);
    assert_eq!(lifted.code, Some(1));
}

#[tokio::test]
async fn a_wrong_configmap_is_named_and_the_last_good_rules_count() {
    let world = World::new().await;
    // The record is written with the first configuration.
    world.ok("ban 192.0.2.7 --wait").await;
    let record = async || {
        let maps: kube_client::Api<k8s_openapi::api::core::v1::ConfigMap> =
            kube_client::Api::namespaced(world.client.clone(), "default");
        maps.get_opt("ipblock-operator-record")
            .await
            .unwrap()
            .is_some()
    };
    while !record().await {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    world.configure(&[("whitelist", "203.0.113.300")]).await;
    let answer = world.ok("why 203.0.113.10").await;
    assert!(
        answer.contains("is allowlisted (whitelist, line 2)"),
        "{answer}"
    );
    assert!(answer.contains("the ConfigMap has errors, and the operator goes on with its last good configuration: whitelist, line 1"), "{answer}");
    let elsewhere = world.ok("why 203.0.113.10 --operator-namespace web").await;
    assert!(
        elsewhere.contains("there is no ConfigMap web/ipblock-operator-config"),
        "{elsewhere}"
    );
}

#[tokio::test]
async fn top_counts_by_source_network_and_phase() {
    let world = World::new().await;
    for ip in ["192.0.2.7", "192.0.2.8"] {
        world.ok(&format!("ban {ip} --source feed --wait")).await;
    }
    world.ok("ban 2001:db8::7 --for forever --wait").await;
    world.ipb("unban 192.0.2.8 --wait").await;
    let text = world.ok("top").await;
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().take(4).collect())
        .collect();
    for row in [
        ["feed", "1", "2", "2"],
        ["manual", "1", "1", "1"],
        ["192.0.2.0/24", "1", "2", "2"],
        ["2001:db8::/48", "1", "1", "1"],
        ["active", "2", "2", "2"],
        ["expired", "0", "1", "1"],
    ] {
        assert!(rows.contains(&row.to_vec()), "{row:?}: {text}");
    }
    assert!(world.ok("top --limit 1").await.contains("and 1 more"));
}

#[tokio::test]
async fn names_and_addresses_of_standing_bans_are_completed() {
    let world = World::new().await;
    world.ok("ban 192.0.2.7 --wait").await;
    world.ok("ban 192.0.2.9 -n web --wait").await;
    assert_eq!(world.ok("__complete unban 192").await, "192.0.2.7\n:4\n");
    assert_eq!(
        world.ok("__complete -- -n web why 192").await,
        "192.0.2.9\n:4\n"
    );
    assert_eq!(
        world.ok("__complete unban ip").await,
        format!("{}\n:4\n", name("192.0.2.7"))
    );
    assert_eq!(world.ok("__complete list -n we").await, "web\n:4\n");
    assert_eq!(world.ok("__complete import ''").await, ":0\n");
    assert_eq!(
        world.ok("__complete -- list --sort").await,
        "--sort-by\n:4\n"
    );
    // Without a cluster there is nothing to choose from, and no error.
    let nowhere = world.file("nowhere", "{}");
    assert_eq!(
        world
            .ok(&format!("__complete --kubeconfig {nowhere} unban 192"))
            .await,
        ":4\n"
    );
}
