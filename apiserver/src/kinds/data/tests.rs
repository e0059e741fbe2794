//! Tests of the table of kinds.

use serde_json::json;

use super::*;

fn at(kind: (&str, &str, &str), path: &str) -> &'static Field {
    let mut of = root(kind.0, kind.1, kind.2).unwrap();
    let mut found = None;
    for name in path.split('.') {
        let field = of.field(name).unwrap_or_else(|| panic!("{path}: {name}"));
        found = Some(field);
        let mut form = &field.form;
        while let Form::List(_, items) | Form::Map(_, items) = form {
            form = items;
        }
        of = form.named().unwrap_or(of);
    }
    found.unwrap()
}

#[test]
fn the_table_is_whole() {
    let data = Data::get();
    for version in &data.versions {
        for resource in &version.resources {
            let root = root(version.group, version.name, resource.kind);
            assert!(root.is_some(), "{}", resource.kind);
        }
    }
    assert_eq!(data.versions[0].group, "");
    assert!(data.types.len() > 500, "{}", data.types.len());
}

#[test]
fn lists_have_the_types_and_keys_of_server_side_apply() {
    let pod = ("", "v1", "Pod");
    let ports = at(pod, "spec.containers.ports");
    assert_eq!(ports.list, Some(ListType::Map));
    assert_eq!(ports.keys, ["containerPort", "protocol"]);
    assert_eq!(
        at(pod, "spec.containers.ports.protocol").default,
        Some(json!("TCP"))
    );
    assert_eq!(at(pod, "spec.tolerations").list, Some(ListType::Atomic));
    assert_eq!(at(pod, "metadata.finalizers").list, Some(ListType::Set));
    assert_eq!(at(pod, "spec.nodeSelector").atomic, Some(true));
    assert!(root("", "v1", "Pod").unwrap().field("spec").is_some());
    assert!(
        Data::get()
            .named("core.v1.LocalObjectReference")
            .unwrap()
            .atomic
    );
}

#[test]
fn lists_merge_by_the_keys_of_a_real_server() {
    let cases = [
        (("", "v1", "Pod"), "spec.containers", "name"),
        (("", "v1", "Pod"), "spec.containers.env", "name"),
        (
            ("", "v1", "Pod"),
            "spec.initContainers.ports",
            "containerPort",
        ),
        (
            ("", "v1", "Pod"),
            "spec.containers.volumeMounts",
            "mountPath",
        ),
        (("", "v1", "Pod"), "spec.hostAliases", "ip"),
        (
            ("", "v1", "Pod"),
            "spec.topologySpreadConstraints",
            "topologyKey",
        ),
        (("", "v1", "Pod"), "status.conditions", "type"),
        (("", "v1", "Pod"), "status.podIPs", "ip"),
        (
            ("apps", "v1", "Deployment"),
            "spec.template.spec.volumes",
            "name",
        ),
        (
            ("apps", "v1", "Deployment"),
            "spec.template.metadata.ownerReferences",
            "uid",
        ),
        (
            ("batch", "v1", "CronJob"),
            "spec.jobTemplate.spec.template.spec.containers",
            "name",
        ),
        (("", "v1", "Service"), "spec.ports", "port"),
        (("", "v1", "ServiceAccount"), "secrets", "name"),
        (("", "v1", "Namespace"), "status.conditions", "type"),
        (
            (
                "admissionregistration.k8s.io",
                "v1",
                "ValidatingWebhookConfiguration",
            ),
            "webhooks.matchConditions",
            "name",
        ),
    ];
    for (kind, path, key) in cases {
        assert_eq!(at(kind, path).patch, Patch::MergeBy(key), "{kind:?} {path}");
    }
    assert_eq!(
        at(("", "v1", "ConfigMap"), "metadata.finalizers").patch,
        Patch::MergeSet
    );
    let replaced = at(("policy", "v1", "PodDisruptionBudget"), "spec.selector");
    assert_eq!(replaced.patch, Patch::Replace);
    for (kind, path) in [
        (("", "v1", "Pod"), "spec.tolerations"),
        (("", "v1", "Pod"), "spec.containers.envFrom"),
        (("", "v1", "ServiceAccount"), "imagePullSecrets"),
        (("networking.k8s.io", "v1", "Ingress"), "spec.rules"),
        (("rbac.authorization.k8s.io", "v1", "Role"), "rules"),
    ] {
        assert_eq!(at(kind, path).patch, Patch::Default, "{kind:?} {path}");
    }
}

#[test]
fn a_type_has_its_names_in_open_api_and_go() {
    for (name, open_api, go) in [
        ("core.v1.Pod", "io.k8s.api.core.v1.Pod", "v1.Pod"),
        (
            "meta.v1.ObjectMeta",
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "v1.ObjectMeta",
        ),
        (
            "resource.Quantity",
            "io.k8s.apimachinery.pkg.api.resource.Quantity",
            "resource.Quantity",
        ),
        (
            "resource.v1.ResourceClaim",
            "io.k8s.api.resource.v1.ResourceClaim",
            "v1.ResourceClaim",
        ),
    ] {
        let of = Data::get().named(name).unwrap();
        assert_eq!((of.open_api_name().as_str(), of.go_name()), (open_api, go));
    }
}

#[test]
fn a_field_has_the_marks_of_its_go_type() {
    let probe = at(("", "v1", "Pod"), "spec.containers.livenessProbe.httpGet");
    assert_eq!(probe.embedded_in, Some("ProbeHandler"));
    let replicas = at(("apps", "v1", "Deployment"), "spec.replicas");
    assert!(replicas.pointer && replicas.omit_empty);
    let strategy = at(("apps", "v1", "Deployment"), "spec.strategy.type");
    assert_eq!(strategy.enumeration, ["Recreate", "RollingUpdate"]);
    assert!(at(("apps", "v1", "Deployment"), "spec.selector").required);
}
