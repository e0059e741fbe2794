//! The commands that need no cluster.

use preprod_guard::commands::{Access, Credentials, check, kubeconfig};
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
