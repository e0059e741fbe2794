//! ban and unban.

use ipblock_operator::api::{ALERTS, Phase, RESOLVED};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube_client::Api;
use kube_client::api::Patch;
use serde_json::json;

use super::world::{World, steady};

/// The name of a block, as triggers name it.
fn name(ip: &str) -> String {
    ipblock_operator::target::object_name(ip)
}

#[tokio::test]
async fn a_ban_is_made_prolonged_lifted_and_made_again_with_one_block() {
    let world = World::new().await;
    let name = name("192.0.2.7");
    let made = world
        .ipb("ban 192.0.2.7 --for 10m --reason 'port scan' --tag edge --wait")
        .await;
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(
        made.text,
        format!("ipblock.ops.yiiong.top/{name} created\n")
    );
    assert!(
        made.errors
            .starts_with("192.0.2.7 is banned by dry-run until "),
        "{made:?}"
    );
    let block = world.blocks().get(&name).await.unwrap();
    assert_eq!(block.spec.duration.as_deref(), Some("10m"));
    assert_eq!(block.spec.reason.as_deref(), Some("port scan"));
    assert_eq!(block.spec.source.as_deref(), Some("manual"));
    assert_eq!(block.spec.tags, ["edge"]);
    assert!(block.spec.by.is_some(), "{:?}", block.spec);
    let managers = block.metadata.managed_fields.unwrap();
    assert!(
        managers
            .iter()
            .any(|one| one.manager.as_deref() == Some("kubectl-ipb"))
    );

    let again = world.ipb("ban 192.0.2.7 --for 2h").await;
    assert_eq!(again.code, Some(0));
    assert_eq!(
        again.text,
        format!("ipblock.ops.yiiong.top/{name} unchanged\n")
    );
    assert_eq!(
        steady(&again.errors),
        "192.0.2.7 is banned until TIME (in SPAN) already; --extend prolongs it\n"
    );
    let longer = world.ipb("ban 192.0.2.7 --for 2h --extend --wait").await;
    assert_eq!(
        longer.text,
        format!("ipblock.ops.yiiong.top/{name} extended\n")
    );
    assert!(longer.errors.contains("is banned until"), "{longer:?}");
    assert_eq!(world.status(&name).await.bans(), 1, "it is the same ban");

    let lifted = world.ipb("unban 192.0.2.7 --wait").await;
    assert_eq!(lifted.code, Some(0), "{lifted:?}");
    assert_eq!(
        lifted.text,
        format!("ipblock.ops.yiiong.top/{name} unbanned\n")
    );
    assert!(world.status(&name).await.is(&Phase::Expired));
    world
        .refused(
            "unban 192.0.2.7",
            &format!("no block bans 192.0.2.7; default/{name} is over, since"),
        )
        .await;

    let triggered = world.ipb("ban 192.0.2.7 --for forever --wait").await;
    assert_eq!(
        triggered.text,
        format!("ipblock.ops.yiiong.top/{name} triggered\n")
    );
    assert_eq!(
        triggered.errors,
        "192.0.2.7 is banned by dry-run without end\n"
    );
    assert_eq!(world.status(&name).await.bans(), 2);
    let by_name = world.ok(&format!("unban ipb/{name} --wait")).await;
    assert_eq!(by_name, format!("ipblock.ops.yiiong.top/{name} unbanned\n"));
}

#[tokio::test]
async fn a_refused_ban_is_reported_with_its_reason_only_when_waited_for() {
    let world = World::new().await;
    world.ok("ban 203.0.113.10").await;
    world
        .refused(
            "ban 198.51.100.7 --wait",
            "198.51.100.7 is inside the allowlisted range 198.51.100.0/24",
        )
        .await;
    world
        .refused("ban 100.64.0.0/10 --wait", "wider than /24")
        .await;
}

#[tokio::test]
async fn a_dry_run_is_checked_by_the_server_and_stores_nothing() {
    let world = World::new().await;
    let name = name("192.0.2.7");
    let text = world.ok("ban 192.0.2.7 --dry-run").await;
    assert_eq!(
        text,
        format!("ipblock.ops.yiiong.top/{name} created (server dry run)\n")
    );
    assert!(world.blocks().get_opt(&name).await.unwrap().is_none());
}

#[tokio::test]
async fn a_ban_by_hand_on_top_of_an_alerts_ban_is_not_lifted_with_the_alert() {
    let world = World::new().await;
    world.ok("ban 192.0.2.7 --for 1h --wait").await;
    let (blocks, name) = (world.blocks(), name("192.0.2.7"));
    let mut block = blocks.get(&name).await.unwrap();
    let annotations = block.metadata.annotations.get_or_insert_default();
    let record = r#"{"trigger":"am","ban":1,"duration":"1h","alerts":["am/a"]}"#;
    annotations.insert(ALERTS.into(), record.into());
    annotations.insert(RESOLVED.into(), "2026-01-01T12:00:00Z".into());
    blocks
        .replace(&name, &Default::default(), &block)
        .await
        .unwrap();
    let kept = world.ipb("ban 192.0.2.7 --for 10m").await;
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert!(kept.text.ends_with(" unchanged\n"), "{kept:?}");
    let part = "already; the end of its alert does not lift it any more";
    assert!(kept.errors.contains(part), "{kept:?}");
    let block = blocks.get(&name).await.unwrap();
    assert_eq!(block.annotation(ALERTS), None);
    assert_eq!(block.annotation(RESOLVED), None);
    assert_eq!(block.spec.duration.as_deref(), Some("1h"));

    for (line, verb) in [
        ("ban 192.0.2.7 --for 2h --extend", "extended"),
        ("ban 192.0.2.7 --for 2h", "triggered"),
    ] {
        let resolved = json!({
            "metadata": {"annotations": {RESOLVED: "2026-01-01T12:00:00Z"}},
            "spec": {"unblock": verb == "triggered"},
        });
        blocks
            .patch(&name, &Default::default(), &Patch::Merge(resolved))
            .await
            .unwrap();
        let text = world.ok(line).await;
        assert!(text.ends_with(&format!(" {verb}\n")), "{text}");
        let block = blocks.get(&name).await.unwrap();
        assert_eq!(block.annotation(RESOLVED), None, "{verb}");
    }
}

#[tokio::test]
async fn an_unban_of_one_block_or_namespace_reports_what_keeps_the_address_banned() {
    let world = World::new().await;
    let own = name("192.0.2.7");
    for line in [
        "ban 192.0.2.7 --wait",
        "ban 192.0.2.7 -n web --force --wait",
    ] {
        world.ok(line).await;
    }
    // By its name, and of another namespace.
    for (line, stays) in [
        (format!("unban {own} --wait"), format!("web/{own}")),
        (
            "unban 192.0.2.7 -n default --wait".to_owned(),
            format!("web/{own}"),
        ),
    ] {
        world.ok("ban 192.0.2.7 --force --wait").await;
        let lifted = world.ipb(&line).await;
        assert_eq!(lifted.code, Some(1), "{lifted:?}");
        let text = format!("ipblock.ops.yiiong.top/{own} unbanned\n");
        assert_eq!(lifted.text, text, "{lifted:?}");
        let note = format!("192.0.2.7 stays banned by {stays} (192.0.2.7) until");
        assert!(lifted.errors.contains(&note), "{lifted:?}");
    }
    // Nothing to lift in this namespace: the command that lifts the other one is named.
    world
        .refused(
            "unban 192.0.2.7 -n default",
            &format!("web/{own} bans 192.0.2.7, to lift that: kubectl ipb unban {own} -n web"),
        )
        .await;
    let lifted = world.ipb(&format!("unban {own} -n web --wait")).await;
    assert_eq!(lifted.code, Some(0), "{lifted:?}");
}

#[tokio::test]
async fn an_unban_lifts_the_other_blocks_though_one_is_refused() {
    let world = World::new().await;
    world.ok("ban 192.0.2.7 --wait").await;
    world.ok("ban 192.0.2.0/24 -n web --wait").await;
    // `default/…` is requested first, and a policy refuses it.
    let policy = json!({"metadata": {"name": "keep"}, "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"apiGroups": ["ops.yiiong.top"], "apiVersions": ["*"],
            "operations": ["UPDATE"], "resources": ["ipblocks"]}]},
        "validations": [{"expression": "object.metadata.namespace != 'default'", "message": "kept"}]}});
    let binding = json!({"metadata": {"name": "keep"},
        "spec": {"policyName": "keep", "validationActions": ["Deny"]}});
    let create = Default::default();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(world.client.clone());
    let policy = serde_json::from_value(policy).unwrap();
    policies.create(&create, &policy).await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.client.clone());
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&create, &binding).await.unwrap();
    let lifted = world.ipb("unban 192.0.2.7 --overlapping --wait").await;
    assert_eq!(lifted.code, Some(1), "{lifted:?}");
    assert!(lifted.errors.contains("kept"), "{lifted:?}");
    let range = name("192.0.2.0/24");
    let text = format!("ipblock.ops.yiiong.top/{range} unbanned\n");
    assert_eq!(lifted.text, text, "{lifted:?}");
}

#[tokio::test]
async fn an_unban_names_what_keeps_the_address_banned() {
    let world = World::new().await;
    world.ok("ban 192.0.2.7 --wait").await;
    world.ok("ban 192.0.2.0/24 -n web --for 3h --wait").await;
    let range = name("192.0.2.0/24");
    let lifted = world.ipb("unban 192.0.2.7 --wait").await;
    assert_eq!(lifted.code, Some(1), "it stays banned: {lifted:?}");
    assert!(lifted.text.ends_with(" unbanned\n"));
    let stays = format!(
        "192.0.2.7 stays banned by web/{range} (192.0.2.0/24) until TIME (in SPAN); to lift that: kubectl ipb unban {range} -n web\n"
    );
    assert!(steady(&lifted.errors).ends_with(&stays), "{lifted:?}");
    world
        .refused(
            "unban 192.0.2.7",
            &format!(
                "web/{range} bans 192.0.2.0/24, to lift that: kubectl ipb unban {range} -n web"
            ),
        )
        .await;
    let all = world.ipb("unban 192.0.2.7 --overlapping --wait").await;
    assert_eq!(all.code, Some(0), "{all:?}");
    world
        .refused("unban 192.0.2.7", "no block bans 192.0.2.7")
        .await;
    world
        .refused("unban nothing", "Error from server (NotFound)")
        .await;
    world
        .refused(
            "unban pod/x",
            "neither an address, a range nor the name of a block",
        )
        .await;
}

#[tokio::test]
async fn a_name_that_another_address_has_is_an_error() {
    let world = World::new().await;
    let name = name("192.0.2.7");
    let block =
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"ip": "192.0.2.99"}}));
    world
        .blocks()
        .create(&Default::default(), &block.unwrap())
        .await
        .unwrap();
    world
        .refused(
            "ban 192.0.2.7",
            "has the name for 192.0.2.7, and is about 192.0.2.99",
        )
        .await;
}

#[tokio::test]
async fn an_address_that_a_block_of_another_name_bans_gets_a_second_one_only_by_force() {
    let world = World::new().await;
    let name = name("192.0.2.7");
    let spec =
        json!({"metadata": {"name": "edge"}, "spec": {"ip": "192.0.2.7", "duration": "10m"}});
    let (blocks, create) = (world.blocks(), Default::default());
    let block = serde_json::from_value(spec).unwrap();
    blocks.create(&create, &block).await.unwrap();
    let banned = async {
        while !world.status("edge").await.is(&Phase::Active) {
            tokio::task::yield_now().await;
        }
    };
    let banned = tokio::time::timeout(std::time::Duration::from_secs(20), banned);
    banned.await.expect("the operator bans it");
    for more in ["", "--extend", "--dry-run", "--wait"] {
        let refused = world.ipb(&format!("ban 192.0.2.7 {more}")).await;
        assert_eq!(refused.code, Some(0), "{more}: {refused:?}");
        assert!(
            refused
                .text
                .starts_with("ipblock.ops.yiiong.top/edge unchanged"),
            "{more}: {refused:?}"
        );
        let why = "192.0.2.7 is banned by default/edge until TIME (in SPAN) already; --force makes a second block\n";
        assert!(
            steady(&refused.errors).starts_with(why),
            "{more}: {refused:?}"
        );
        assert!(blocks.get_opt(&name).await.unwrap().is_none(), "{more}");
    }
    // Another namespace alone has none.
    world.ok("ban 192.0.2.7 -n web").await;
    let text = world.ok("ban 192.0.2.7 --force --wait").await;
    assert_eq!(text, format!("ipblock.ops.yiiong.top/{name} created\n"));
    // From now on it is the block of the command.
    let longer = world.ok("ban 192.0.2.7 --for 3h --extend").await;
    assert_eq!(longer, format!("ipblock.ops.yiiong.top/{name} extended\n"));
}

#[tokio::test]
async fn without_an_operator_a_wait_ends_with_a_hint() {
    let world = World::empty(reeve_apiserver::ApiServer::builder()).await;
    world
        .refused(
            "ban 192.0.2.7",
            "the server has no IPBlock kind: install the operator",
        )
        .await;
    world
        .refused("list", "the server has no IPBlock kind")
        .await;
    world.install().await;
    world
        .refused(
            "ban 192.0.2.7 --wait --timeout 1s",
            "not banned within 1s: the operator has not seen the block",
        )
        .await;
    let pending = world.ipb("ban 192.0.2.7 --for 2h").await;
    assert!(
        pending
            .errors
            .contains("requested already; --extend makes it longer"),
        "{pending:?}"
    );
    world.ok("ban 192.0.2.7 --for 2h --extend").await;
    world
        .refused(
            "ban 192.0.2.8 -n nowhere",
            "namespaces \"nowhere\" not found",
        )
        .await;
}
