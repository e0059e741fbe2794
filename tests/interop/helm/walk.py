"""Installs, upgrades, rolls back and removes a chart with Helm and its defaults.

    walk.py KUBECONFIG HELM

No controllers run: a thread of this program reports hooks as complete and workloads as ready. Each command is printed with
its output, and after it the objects, without versions, uids and times, so that the lines of two servers can be compared.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading

from kubernetes import client, config, dynamic
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import DynamicApiError

CHART = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chart")
NAMESPACE = "release"
TIME = re.compile(
    r"\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?\+0000 UTC|Z|[+-]\d\d:\d\d)?"
)
# Addresses of Services, ages, and the times of Helm's labels.
OTHER = re.compile(r"10\.96\.\d+\.\d+|\b(\d+m)?\d+s\b|modifiedAt=\d+")
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The kinds of the chart, and those in which Helm keeps releases.
KINDS = [
    ("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "ServiceAccount"), ("v1", "LimitRange"), ("v1", "ResourceQuota"),
    ("v1", "Service"), ("v1", "PersistentVolumeClaim"), ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"), ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"), ("batch/v1", "CronJob"), ("batch/v1", "Job"), ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("policy/v1", "PodDisruptionBudget"), ("networking.k8s.io/v1", "Ingress"), ("networking.k8s.io/v1", "NetworkPolicy"),
    ("networking.k8s.io/v1", "IngressClass"), ("scheduling.k8s.io/v1", "PriorityClass"),
    ("storage.k8s.io/v1", "StorageClass"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("helm.example.com/v1", "Box"),
]
NOW = "2026-01-01T00:00:00Z"


class Controllers(threading.Thread):
    """Reports hooks as complete and workloads as ready."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.apps, self.batch, self.core = client.AppsV1Api(), client.BatchV1Api(), client.CoreV1Api()

    def run(self):
        while not self.stopped.wait(0.1):
            try:
                self.round()
            except ApiException as error:
                # It was deleted or changed meanwhile.
                if error.status not in (404, 409):
                    raise

    def round(self):
        for item in self.batch.list_namespaced_job(NAMESPACE).items:
            if not item.spec.suspend and not item.status.conditions:
                conditions = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
                status = {"startTime": NOW, "completionTime": NOW, "succeeded": 1, "conditions": conditions}
                self.batch.patch_namespaced_job_status(item.metadata.name, NAMESPACE, {"status": status})
        for item in self.apps.list_namespaced_deployment(NAMESPACE).items:
            if item.status.observed_generation != item.metadata.generation:
                counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
                status = {name: item.spec.replicas for name in counts}
                status["conditions"] = [
                    {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
                    {"type": "Available", "status": "True"},
                ]
                self.apps.patch_namespaced_deployment_status(item.metadata.name, NAMESPACE, seen(item, status))
        for item in self.apps.list_namespaced_stateful_set(NAMESPACE).items:
            if item.status.observed_generation != item.metadata.generation:
                counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas")
                status = {name: item.spec.replicas for name in counts}
                status.update(currentRevision="one", updateRevision="one")
                self.apps.patch_namespaced_stateful_set_status(item.metadata.name, NAMESPACE, seen(item, status))
        for item in self.apps.list_namespaced_daemon_set(NAMESPACE).items:
            if item.status.observed_generation != item.metadata.generation:
                counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable")
                status = {name: 1 for name in counts}
                self.apps.patch_namespaced_daemon_set_status(item.metadata.name, NAMESPACE, seen(item, status))
        for item in self.core.list_namespaced_persistent_volume_claim(NAMESPACE).items:
            if item.metadata.deletion_timestamp and item.metadata.finalizers:
                patch = {"metadata": {"finalizers": None}}
                self.core.patch_namespaced_persistent_volume_claim(item.metadata.name, NAMESPACE, patch)
            elif item.status.phase != "Bound":
                status = {"status": {"phase": "Bound"}}
                self.core.patch_namespaced_persistent_volume_claim_status(item.metadata.name, NAMESPACE, status)


def seen(item, status):
    return {"status": {**status, "observedGeneration": item.metadata.generation}}


class Walk:
    """Runs Helm against one server."""

    def __init__(self, kubeconfig, helm, home):
        self.helm = [helm, "--kubeconfig", kubeconfig, "--namespace", NAMESPACE]
        self.environment = {**os.environ, **{f"HELM_{part}_HOME": os.path.join(home, part) for part in ("CACHE", "CONFIG", "DATA")}}
        self.objects = dynamic.DynamicClient(client.ApiClient())

    def run(self, *arguments):
        """Prints a command, its output without times, and its exit code."""
        done = subprocess.run(
            [*self.helm, *arguments], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
        print("$ helm", " ".join(arguments).replace(CHART, "CHART"))
        lines = (done.stdout + done.stderr).splitlines()
        # It prints one table after the other in any order.
        for line in sorted(lines) if arguments[0] == "status" else lines:
            # Its internal log lines have times and differ from run to run.
            if "level=DEBUG" not in line:
                print(comparable(line).rstrip())
        print(f"[{done.returncode}]", flush=True)

    def show(self):
        """Prints the objects of the release."""
        for api_version, kind in KINDS:
            try:
                resource = self.objects.resources.get(api_version=api_version, kind=kind)
                found = resource.get(**({"namespace": NAMESPACE} if resource.namespaced else {})).to_dict()["items"]
            except (DynamicApiError, dynamic.exceptions.ResourceNotFoundError) as error:
                print(f"{kind}: {type(error).__name__}")
                continue
            for item in sorted(found, key=lambda item: item["metadata"]["name"]):
                name = item["metadata"]["name"]
                # Controllers of a real server make the account `default`.
                if (resource.namespaced or "helm" in name) and name != "default":
                    print(f"{kind} {name}: {shown(item)}", flush=True)


def comparable(text):
    text = OTHER.sub("<other>", UID.sub("<uid>", TIME.sub("<time>", text)))
    # The columns of a table are as wide as their widest cell.
    return re.sub(r"(?<=\S)  +", "  ", text)


def shown(item):
    """An object without what differs from run to run."""
    metadata = item["metadata"]
    # Only a real server protects claims by a finalizer, which the thread removes.
    for field in ("uid", "resourceVersion", "creationTimestamp", "finalizers"):
        metadata.pop(field, None)
    entries = metadata.get("managedFields", [])
    # The thread and the server itself write the status.
    metadata["managedFields"] = sorted(
        (json.dumps({key: entry[key] for key in entry if key != "time"}, sort_keys=True) for entry in entries if entry.get("subresource") != "status")
    )
    if item.get("type") == "helm.sh/release.v1":
        # A release is compressed JSON with times.
        item["data"].pop("release")
        metadata["labels"].pop("modifiedAt", None)
    item.pop("status", None)
    spec = item.get("spec") or {}
    for field in ("clusterIP", "clusterIPs"):
        spec.pop(field, None)
    return comparable(json.dumps(item, sort_keys=True))


def main():
    kubeconfig, helm = sys.argv[1:3]
    config.load_kube_config(kubeconfig)
    controllers = Controllers()
    controllers.start()
    with tempfile.TemporaryDirectory() as home:
        walk = Walk(kubeconfig, helm, home)
        wait = ("--wait", "--timeout", "60s")
        changed = ("--set", "replicas=2,annotated=true,budget=false,quota=true,size=5")
        walk.run("install", "web", CHART, "--create-namespace", "--dry-run=server")
        walk.run("install", "web", CHART, "--create-namespace", *wait)
        walk.show()
        walk.run("install", "web", CHART)
        walk.run("list")
        walk.run("status", "web")
        for part in ("manifest", "values", "hooks", "notes", "metadata", "all"):
            walk.run("get", part, "web")
        walk.run("upgrade", "web", CHART, *changed, "--dry-run=server")
        walk.run("upgrade", "web", CHART, *changed, *wait)
        walk.show()
        walk.run("get", "manifest", "web")
        walk.run("upgrade", "web", CHART, "--set", "size=0")
        walk.run("list", "--failed", "-o", "json")
        walk.run("rollback", "web", "1", *wait)
        walk.show()
        # Another manager takes the image.
        image = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:9"}]}}}}
        client.AppsV1Api().patch_namespaced_deployment("web", NAMESPACE, image, field_manager="other")
        walk.run("upgrade", "web", CHART, "--set", "image=web:2")
        walk.run("upgrade", "web", CHART, "--set", "image=web:2", "--force-conflicts", *wait)
        walk.run("upgrade", "web", CHART, "--set", "image=web:3,annotated=true", "--server-side=false", *wait)
        walk.show()
        walk.run("upgrade", "web", CHART, "--set", "size=0", "--rollback-on-failure", *wait)
        walk.run("history", "web")
        walk.run("install", "old", CHART, "--server-side=false", "--skip-crds", *wait)
        walk.run("list", "--short")
        walk.run("uninstall", "old", *wait)
        walk.run("uninstall", "web", "--keep-history", *wait)
        walk.run("list", "--uninstalled")
        walk.run("rollback", "web", "2", *wait)
        walk.run("uninstall", "web", *wait)
        walk.run("list")
        walk.run("uninstall", "web")
        walk.show()
    controllers.stopped.set()
    controllers.join()
    print("walked")


main()
