"""The official client on a server of the fixture."""

import http.client
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import timedelta

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from reevetest import Server, faults


@pytest.fixture
def core(reeve):
    # Without the client's own repeats of requests, which hide a lost answer.
    api = reeve.api_client()
    api.configuration.retries = False
    api.rest_client = client.rest.RESTClientObject(api.configuration)
    return client.CoreV1Api(api)


def config_map(name):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name))


def names(core):
    return [item.metadata.name for item in core.list_namespaced_config_map("default").items]


@pytest.mark.parametrize("_", range(2))
def test_objects_and_faults_of_a_test_are_gone_in_the_next_one(reeve, core, _):
    core.create_namespaced_config_map("default", config_map("same-name"))
    reeve.add_fault(faults.status(500, "left over"), verb="create")


def test_a_watch_follows_a_restore(reeve, core):
    core.create_namespaced_config_map("default", config_map("kept"))
    reeve.snapshot("before")
    seen = []
    done = threading.Event()
    listed = core.list_namespaced_config_map("default")

    def follow():
        stream = watch.Watch()
        version = listed.metadata.resource_version
        for event in stream.stream(core.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=60):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 4:
                stream.stop()
        done.set()

    follower = threading.Thread(target=follow)
    follower.start()
    reeve.wait_for_requests(1, verb="watch", resource="configmaps")
    core.create_namespaced_config_map("default", config_map("new"))
    core.delete_namespaced_config_map("kept", "default")
    assert reeve.restore("before") == 2
    assert done.wait(60)
    follower.join()
    assert seen[:2] == [("ADDED", "new"), ("DELETED", "kept")]
    assert sorted(seen[2:]) == [("ADDED", "kept"), ("DELETED", "new")]
    assert reeve.count_requests(verb="watch") == 1
    assert names(core) == ["kept"]


def test_a_lost_answer_leaves_the_object(reeve, core):
    with reeve.fault(faults.lose_answer(), verb="create", group="", resource="configmaps", times=1) as rule:
        with pytest.raises(Exception) as raised:
            core.create_namespaced_config_map("default", config_map("ambiguous"))
    assert not isinstance(raised.value, ApiException), "there is no answer"
    assert rule.hits == 1
    assert names(core) == ["ambiguous"]
    (request,) = reeve.requests(verb="create", resource="configmaps", bodies=True)
    assert (request.code, request.body["metadata"]["name"]) == (0, "ambiguous")


def test_an_old_watch_gets_gone(reeve, core):
    old = core.create_namespaced_config_map("default", config_map("first")).metadata.resource_version
    core.create_namespaced_config_map("default", config_map("second"))
    reeve.forget_history()
    with pytest.raises(ApiException) as raised:
        list(watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=old, timeout_seconds=5))
    assert raised.value.status == 410


def test_an_expired_page_gets_gone(reeve, core):
    for name in "abc":
        core.create_namespaced_config_map("default", config_map(name))
    page = core.list_namespaced_config_map("default", limit=1)
    # The newest version stays readable, as in etcd.
    core.create_namespaced_config_map("default", config_map("d"))
    reeve.compact()
    with pytest.raises(ApiException) as raised:
        core.list_namespaced_config_map("default", limit=1, _continue=page.metadata._continue)
    assert raised.value.status == 410


def test_a_refusal_has_the_code_and_the_text_of_the_rule(reeve, core):
    reeve.add_fault(faults.status(503, "electing", retry_after=1), verb="list", after=1, times=1)
    assert names(core) == []
    with pytest.raises(ApiException) as raised:
        names(core)
    assert (raised.value.status, raised.value.headers["Retry-After"]) == (503, "1")
    assert "electing" in raised.value.body
    assert names(core) == []


def test_time_passes(core, reeve):
    before = reeve.now()
    assert reeve.advance(timedelta(days=2)) - before >= timedelta(days=2)
    created = core.create_namespaced_config_map("default", config_map("late"))
    assert created.metadata.creation_timestamp - before > timedelta(hours=47)


def test_an_outage_ends():
    with Server() as server:

        def call(path, body=None):
            request = urllib.request.Request(server.url + path, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)

        page = call("/api/v1/namespaces?limit=1")
        rest = f"/api/v1/namespaces?limit=1&continue={page['metadata']['continue']}"
        call("/api/v1/namespaces", b'{"metadata": {"name": "later"}}')
        call(rest)
        began = time.monotonic()
        server.outage(0.3)
        # A busy machine may sleep through the outage. The history that it costs shows it at any time after its end.
        deadline = began + 30
        code = None
        while code != 410:
            assert time.monotonic() < deadline
            try:
                call(rest)
            except urllib.error.HTTPError as error:
                code = error.code
            except (OSError, http.client.HTTPException):
                pass
        assert time.monotonic() - began >= 0.3


def test_the_server_ends_with_its_parent():
    program = "import sys, reevetest; s = reevetest.Server(); print(s.url, flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = child.stdout.readline().strip()
    urllib.request.urlopen(f"{url}/version", timeout=10).close()
    child.kill()
    child.communicate()
    deadline = time.monotonic() + 30
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            urllib.request.urlopen(f"{url}/version", timeout=10).close()
