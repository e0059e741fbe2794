//! The commands that need no cluster.

use preprod_guard::commands::{Access, Credentials, check, kubeconfig, verify};
use preprod_guard::config::Config;
use reeve_webhook::admission::Operation;
use serde_json::{Value, json};

use crate::scenario::{CALLERS, POD, call, create, delete, object, plain, production};

#[tokio::test]
async fn check_decides_with_the_objects_of_a_list() {
    let named = |api_version: &str, kind: &str, mut object: Value| {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object
    };
    let mut namespace = object("hbox", None, json!({}));
    namespace["metadata"]["namespace"] = Value::Null;
    let list = json!({"kind": "List", "items": [
        named("v1", "Namespace", namespace),
        named("v1", "Pod", production("web-0")),
    ]})
    .to_string();
    let config = || Config::parse(CALLERS).unwrap();
    let body = json!({"metadata": {"name": "web-0", "namespace": "hbox"}});
    let evict = call(
        Operation::Create,
        ("policy", "Eviction", "pods"),
        None,
        Some(body),
    );
    let evict = evict.subresource("", "v1", "pods", "eviction");
    for (call, allowed, text) in [
        (
            delete(POD, production("web-0")),
            false,
            "DELETE production pod",
        ),
        (evict, false, "CREATE production pod"),
        (create(POD, plain("try-0")), true, "\"allowed\":true"),
    ] {
        let review = call.review().to_string();
        let (decision, answer) = check(config(), &review, Some(&list)).await.unwrap();
        assert_eq!(decision, allowed, "{call}");
        assert!(answer.contains(text), "{answer}");
    }
    assert!(check(config(), "{}", None).await.is_err());
}

#[test]
fn the_exit_status_of_a_denial_is_3_and_a_namespace_needs_no_list() {
    let name = format!("preprod-guard-check-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let [config, review] = ["guard.yaml", "review.json"].map(|name| directory.join(name));
    let text = format!("{CALLERS}\nmaximumAge: {{hours: 4000000}}\n");
    std::fs::write(&config, text).unwrap();
    for (call, code) in [
        (delete(POD, production("web-0")), 3),
        (delete(POD, plain("try-0")), 0),
    ] {
        std::fs::write(&review, call.review().to_string()).unwrap();
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_preprod-guard"));
        let output = check.arg("check").arg("--config").args([&config, &review]);
        let output = output.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{call}: {output:?}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_kubeconfig_is_for_pre_release_callers_only() {
    let config =
        "callers: {users: [hbox-pre], groups: [pre], serviceAccountNamespaces: [hbox-pre]}";
    let config = Config::parse(config).unwrap();
    for (user, group, account, expected) in [
        ("hbox-pre", None, None, ""),
        ("otto", Some("pre"), None, ""),
        ("ci", None, Some(("hbox-pre", "ci")), ""),
        (
            "hbox-pr",
            None,
            None,
            "hbox-pr would be a caller of production",
        ),
        (
            "hbox-pre",
            Some("system:masters"),
            None,
            "a group of the cluster",
        ),
        (
            "hbox-pre",
            None,
            Some(("hbox", "ci")),
            "system:serviceaccount:hbox:ci would be a caller",
        ),
    ] {
        let result = verify(&config, user, group, account);
        let text = result.err().map(|error| error.to_string());
        let text = text.unwrap_or_default();
        assert!(text.contains(expected), "{user}: {text}");
        assert_eq!(text.is_empty(), expected.is_empty(), "{user}: {text}");
    }
}

#[test]
fn a9_cluster_user_and_context_of_a_kubeconfig_have_one_name() {
    let access = Access {
        server: "https://127.0.0.1:6443".into(),
        authorities: String::new(),
    };
    let token = Credentials::Token("secret".into());
    let text = kubeconfig(&access, "hbox-pre", "hbox", &token).unwrap();
    let config: Value = serde_saphyr::from_str(&text).unwrap();
    let context = &config["contexts"][0];
    for name in [
        &config["current-context"],
        &context["name"],
        &context["context"]["cluster"],
        &context["context"]["user"],
        &config["clusters"][0]["name"],
        &config["users"][0]["name"],
    ] {
        assert_eq!(name, "hbox-pre");
    }
    assert_eq!(context["context"]["namespace"], "hbox");
    assert_eq!(config["users"][0]["user"]["token"], "secret");
}
