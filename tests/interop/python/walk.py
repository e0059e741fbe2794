"""Walks through the verbs with the official Python client and its defaults.

    walk.py KUBECONFIG MANIFESTS

MANIFESTS is a JSON list of objects. Each is created, applied by a second manager, patched three ways, listed, watched and
deleted. One line a step is printed, without versions, uids and times, so that the lines of two servers can be compared.
"""

import json
import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import DynamicApiError, ResourceNotFoundError

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
# A real server protects them by finalizers, which its controller manager removes.
PROTECTED = {"Namespace", "PersistentVolume", "PersistentVolumeClaim", "VolumeAttributesClass"}
LABEL = {"metadata": {"labels": {"walked": "yes"}}}


def outcome(step):
    """What a step returned, or the status that refused it."""
    try:
        return "ok", step()
    except (ApiException, DynamicApiError) as error:
        try:
            status = json.loads(error.body)
            text = status.get("message", "")
        except (TypeError, ValueError):
            text = str(error.body)
        return f"{error.status} {text}", None


def managers(found):
    """The managers of an object's fields, with their operations. A server's own set the status meanwhile."""
    fields = found.to_dict()["metadata"].get("managedFields", [])
    return sorted({(entry["manager"], entry["operation"]) for entry in fields if entry.get("subresource") != "status"})


def walk(api, manifest):
    """Walks one object through the verbs, and yields a line a step."""
    kind = f"{manifest['apiVersion']} {manifest['kind']}"
    name = manifest["metadata"]["name"]
    try:
        resource = api.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
    except ResourceNotFoundError:
        yield f"{kind} {name}: not served"
        return
    place = {"name": name}
    if resource.namespaced:
        place["namespace"] = manifest["metadata"].get("namespace", "default")
    of = {key: value for key, value in place.items() if key == "namespace"}

    text, created = outcome(lambda: resource.create(body=manifest, **of))
    yield f"{kind} {name}: create: {text}"
    if created is None:
        return
    label = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"]}
    label["metadata"] = {**place, "labels": {"applied": "yes"}}
    text, applied = outcome(lambda: resource.server_side_apply(body=label, field_manager="second", **place))
    yield f"{kind} {name}: apply: {text}"
    conflict = {**label, "metadata": {**label["metadata"], "labels": {"applied": "no"}}}
    text, _ = outcome(lambda: resource.server_side_apply(body=conflict, field_manager="third", **place))
    yield f"{kind} {name}: apply of another: {text}"
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {"walked": "yes"}}]
    for patch, body in [(STRATEGIC, LABEL), (MERGE, LABEL), (JSON_PATCH, operations)]:
        text, _ = outcome(lambda: resource.patch(body=body, content_type=patch, **place))
        yield f"{kind} {name}: {patch}: {text}"
    text, found = outcome(lambda: resource.get(**place))
    yield f"{kind} {name}: get: {text} {managers(found) if found else ''}"
    text, listed = outcome(lambda: resource.get(label_selector="walked=yes", **of))
    names = [item.metadata.name for item in listed.items] if listed else []
    yield f"{kind} {name}: list: {text} {name in names}"
    if listed is None:
        return

    text, _ = outcome(lambda: resource.delete(body={"propagationPolicy": "Background"}, **place))
    yield f"{kind} {name}: delete: {text}"
    start = listed.metadata.resourceVersion
    events = resource.watch(resource_version=start, timeout=60, label_selector="walked=yes", **of)
    for event in events:
        if manifest["kind"] in PROTECTED:
            break
        # It marks a Pod before it deletes it.
        if event["type"] == "MODIFIED":
            continue
        yield f"{kind} {name}: watch: {event['type']} {event['object'].metadata.name}"
        break


def typed():
    """Steps with the typed clients, whose models check what the server sends."""
    core, apps = client.CoreV1Api(), client.AppsV1Api()
    space = client.V1Namespace(metadata=client.V1ObjectMeta(name="typed"))
    core.create_namespace(space)
    meta = client.V1ObjectMeta(name="web", labels={"app": "web"})
    container = client.V1Container(name="web", image="web:1", ports=[client.V1ContainerPort(container_port=80)])
    template = client.V1PodTemplateSpec(metadata=meta, spec=client.V1PodSpec(containers=[container]))
    spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template)
    made = apps.create_namespaced_deployment("typed", client.V1Deployment(metadata=meta, spec=spec))
    yield f"typed: {made.spec.strategy.rolling_update.max_surge} {made.spec.template.spec.restart_policy}"
    made.spec.replicas = 3
    replaced = apps.replace_namespaced_deployment("web", "typed", made)
    yield f"typed: generation {replaced.metadata.generation}"
    scale = apps.read_namespaced_deployment_scale("web", "typed")
    scale.spec.replicas = 2
    scaled = apps.replace_namespaced_deployment_scale("web", "typed", scale)
    yield f"typed: scale {scaled.spec.replicas} {scaled.status.selector}"
    made.metadata.resource_version = "1"
    text, _ = outcome(lambda: apps.replace_namespaced_deployment("web", "typed", made))
    yield f"typed: {text}"
    for number in range(5):
        core.create_namespaced_config_map("typed", client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"m{number}")))
    page = core.list_namespaced_config_map("typed", limit=2, label_selector="!none")
    seen = [item.metadata.name for item in page.items]
    while page.metadata._continue:
        page = core.list_namespaced_config_map("typed", limit=2, label_selector="!none", _continue=page.metadata._continue)
        seen += [item.metadata.name for item in page.items]
    yield f"typed: pages {sorted(set(seen) - {'kube-root-ca.crt'})}"
    stream = watch.Watch()
    for event in stream.stream(core.list_namespaced_config_map, "typed", timeout_seconds=20, field_selector="metadata.name=m3"):
        yield f"typed: watch {event['type']} {event['object'].metadata.name}"
        stream.stop()
    core.delete_collection_namespaced_config_map("typed", field_selector="metadata.name!=m1")
    left = core.list_namespaced_config_map("typed", field_selector="metadata.name=m1").items
    yield f"typed: left {[item.metadata.name for item in left]}"
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="get", resource="pods", namespace="typed")
        )
    )
    allowed = client.AuthorizationV1Api().create_self_subject_access_review(review)
    yield f"typed: allowed {allowed.status.allowed}"
    yield f"typed: server {client.VersionApi().get_code().major}"


def main():
    config.load_kube_config(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as file:
        manifests = json.load(file)
    api = dynamic.DynamicClient(client.ApiClient())
    for manifest in manifests:
        # A real server keeps the spaces that this client writes in the data, and refuses each patch as a change of them.
        if manifest["kind"] == "ControllerRevision":
            continue
        for line in walk(api, manifest):
            print(line, flush=True)
    for line in typed():
        print(line, flush=True)
    print("walked")


main()
