//! Definitions and objects that the server has at its start.

use super::{Folder, Program, refused, send};

const GADGETS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, maximum: 10}}}
          status: {type: object, properties: {phase: {type: string}}}
";

#[tokio::test]
async fn definitions_of_folders_and_files_are_served_at_the_start() {
    let folder = Folder::new();
    folder.write("crds/gadgets.yaml", GADGETS);
    // As in the folders of kubebuilder, which are for kustomize too.
    folder.write("crds/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [gadgets.yaml]\n");
    folder.write("crds/notes.txt", "not a manifest: [");
    let widgets = GADGETS
        .replace("gadget", "widget")
        .replace("Gadget", "Widget");
    let widgets = folder.write("widgets.yml", &widgets);
    let crds = folder.path("crds");
    let program = Program::start(&["--crd-dir", &crds, "--crd-dir", &widgets]).await;
    for plural in ["gadgets", "widgets"] {
        let path = format!("/apis/example.com/v1/{plural}");
        assert!(program.get(&path).await.is_ok(), "{plural}");
    }
}

#[tokio::test]
async fn objects_are_created_whatever_their_order_with_their_status() {
    let folder = Folder::new();
    let file = folder.write(
        "objects.yaml",
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: refuses-all}
webhooks:
- name: nothing.example.com
  clientConfig: {url: 'https://127.0.0.1:1/'}
  rules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}]
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: Fail
---
apiVersion: example.com/v1
kind: Gadget
metadata: {name: g, namespace: shop}
spec: {size: 3}
status: {phase: Ready}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: shop}
spec: {containers: [{name: c, image: i}]}
status: {phase: Running, podIP: 10.0.0.7}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: unplaced}
",
    );
    folder.write("more/namespace.json", r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}]}"#);
    folder.write("more/gadgets.yaml", GADGETS);
    let more = folder.path("more");
    let program = Program::start(&["--manifests", &file, "--seed", &more]).await;
    let gadget = program
        .get("/apis/example.com/v1/namespaces/shop/gadgets/g")
        .await
        .unwrap();
    assert_eq!(
        (&gadget["spec"]["size"], &gadget["status"]["phase"]),
        (&3.into(), &"Ready".into())
    );
    let pod = program.get("/api/v1/namespaces/shop/pods/p").await.unwrap();
    assert_eq!(
        (&pod["status"]["phase"], &pod["status"]["podIP"]),
        (&"Running".into(), &"10.0.0.7".into())
    );
    let map = "/api/v1/namespaces/default/configmaps/unplaced";
    assert!(program.get(map).await.is_ok());
    // The webhook is in force after all others.
    let maps = "/api/v1/namespaces/default/configmaps";
    let other = serde_json::json!({"metadata": {"name": "refused"}});
    let client = program.client().await;
    assert_eq!(send(&client, "POST", maps, &other).await, Err(500));
}

#[tokio::test]
async fn a_wrong_file_stops_the_start_and_is_named_with_its_document() {
    let folder = Folder::new();
    let crds = folder.write("crds.yaml", GADGETS);
    let empty = folder.write("empty/readme.md", "");
    let empty = empty.trim_end_matches("/readme.md");
    let maps = folder.write(
        "maps.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    );
    let two = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: example.com/v1\nkind: Gadget\n\
               metadata: {name: g}\nspec: {size: 11}\n";
    let invalid = folder.write("invalid.yaml", two);
    let unknown = folder.write("unknown.yaml", &two.replace("Gadget", "Gadgets"));
    let nowhere = folder.write(
        "nowhere.yaml",
        &two.replace("name: g}", "name: g, namespace: nowhere}"),
    );
    let broken = folder.write("broken.yaml", "a: [\n");
    let half = folder.write("half.yaml", "kind: ConfigMap\n");
    let missing = folder.path("missing");
    for (words, expected) in [
        (
            ["--crd-dir", &missing],
            vec![format!("--crd-dir {missing}: ")],
        ),
        (
            ["--crd-dir", empty],
            vec![format!(
                "--crd-dir {empty}: no CustomResourceDefinition is there"
            )],
        ),
        (["--crd-dir", &maps], vec!["no CustomResourceDef".into()]),
        (
            ["--manifests", empty],
            vec![format!("--manifests {empty}: no object is there")],
        ),
        (
            ["--manifests", &invalid],
            vec![
                format!("{invalid}, document 2 (Gadget g): "),
                "less than or equal to 10".into(),
            ],
        ),
        (
            ["--manifests", &unknown],
            vec![
                "document 2".into(),
                "no kind Gadgets in example.com/v1".into(),
            ],
        ),
        (
            ["--manifests", &nowhere],
            vec![
                "document 2".into(),
                "namespaces \"nowhere\" not found".into(),
            ],
        ),
        (["--manifests", &broken], vec!["broken.yaml: ".into()]),
        (
            ["--manifests", &half],
            vec!["half.yaml, document 1: apiVersion or kind is missing".into()],
        ),
    ] {
        let with_crds = [&["--crd-dir", &crds][..], &words[..]].concat();
        let error = refused(&with_crds).await;
        for expected in expected {
            assert!(error.contains(&expected), "{words:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_restart_replaces_definitions_and_keeps_objects() {
    let folder = Folder::new();
    let data = folder.path("data");
    let crds = folder.write("crds.yaml", GADGETS);
    let seed = "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g}\nspec: {size: 3}\n";
    let seed = folder.write("seed.yaml", seed);
    let words = ["--data-dir", &data, "--crd-dir", &crds, "--seed", &seed];
    let path = "/apis/example.com/v1/namespaces/default/gadgets/g";
    let program = Program::start(&words).await;
    let mut gadget = program.get(path).await.unwrap();
    gadget["spec"]["size"] = 4.into();
    let client = program.client().await;
    send(&client, "PUT", path, &gadget).await.unwrap();
    drop(program);
    folder.write("crds.yaml", &GADGETS.replace("maximum: 10", "maximum: 5"));
    let program = loop {
        // The lock of the killed program goes with it, a moment later.
        let mut child = super::command(&words).spawn().unwrap();
        let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut line)
            .await
            .unwrap();
        if let Ok(ready) = serde_json::from_str(&line) {
            break Program { child, ready };
        }
    };
    let mut gadget = program.get(path).await.unwrap();
    assert_eq!(gadget["spec"]["size"], 4);
    gadget["spec"]["size"] = 6.into();
    let client = program.client().await;
    assert_eq!(send(&client, "PUT", path, &gadget).await, Err(422));
}
