"""The server and its control API, without a client library."""

import json
import urllib.request
from datetime import datetime, timezone

import pytest

from reevetest import BINARY_VARIABLE, Error, NotFound, Server, StartError, faults
from reevetest.server import _time

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""
SEED = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: seed}\n"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def plain():
    with Server() as server:
        yield server


def get(server, path):
    with urllib.request.urlopen(server.url + path, timeout=10) as answer:
        return json.load(answer)


def test_objects_and_flags_of_the_start(tmp_path):
    (tmp_path / "crd.yaml").write_text(CRD)
    (tmp_path / "seed.yaml").write_text(SEED)
    with Server(crds=[tmp_path / "crd.yaml"], manifests=[tmp_path / "seed.yaml"], flags=["--minor", "34"]) as server:
        assert get(server, "/version")["minor"] == "34"
        assert get(server, "/apis/example.com/v1/widgets")["items"] == []
        assert get(server, MAPS)["items"][0]["metadata"]["name"] == "seed"
        with server.restored():
            urllib.request.urlopen(urllib.request.Request(f"{server.url}{MAPS}/seed", method="DELETE")).close()
            assert get(server, MAPS)["items"] == []
        assert len(get(server, MAPS)["items"]) == 1


def test_the_kubeconfig_is_a_file_that_goes_with_the_server():
    with Server(tls=True) as server:
        path = server.write_kubeconfig()
        with open(path, encoding="utf-8") as file:
            assert file.read() == server.kubeconfig
        assert server.url in server.kubeconfig and server.url.startswith("https://")
        assert server.certificate_authority
    with pytest.raises(FileNotFoundError):
        open(path, encoding="utf-8")
    server.stop()


def test_a_server_that_does_not_start_is_an_error_with_its_log():
    with pytest.raises(StartError, match="--crd-dir no-such-folder"):
        Server(crds=["no-such-folder"])
    with pytest.raises(StartError, match=BINARY_VARIABLE):
        Server(binary="no-such-program")


@pytest.mark.parametrize(
    "fault",
    [
        faults.status(503, "later", retry_after=2),
        faults.text(429, "slow down"),
        faults.delay(0.5),
        faults.delay_answer(0.5),
        faults.reset(),
        faults.lose_answer(),
        faults.stall(),
        faults.stale("10003"),
        faults.close_empty(),
        faults.reset_after(1),
        faults.close_after(1),
        faults.truncate_after(1),
        faults.stall_after(1),
    ],
    ids=lambda fault: fault.name,
)
def test_faults_have_the_form_of_the_server(plain, fault):
    selected = {"verb": "get", "group": "", "resource": "pods", "namespace": "n", "name": "x", "subresource": ""}
    with plain.fault(fault, **selected, user_agent="a", after=1, times=2, probability=0.5) as rule:
        (listed,) = get(plain, "/reeve/v1/faults")["items"]
        numbers = {"userAgent": "a", "after": 1, "times": 2, "probability": 0.5}
        assert listed["rule"] == {**selected, **numbers, "fault": fault.to_json()}
        assert rule.hits == 0
    assert get(plain, "/reeve/v1/faults")["items"] == []
    rule.remove()


def test_refusals_are_errors_with_a_code(plain):
    with pytest.raises(Error, match="fetch") as raised:
        plain.add_fault(faults.reset(), verb="fetch")
    assert raised.value.code == 400
    with pytest.raises(NotFound):
        plain.restore("none")
    with pytest.raises(Error, match="verbs"):
        plain.requests(verbs="get")
    plain.snapshot("one")
    plain.delete_snapshot("one")
    with pytest.raises(NotFound):
        plain.delete_snapshot("one")


def test_requests_are_awaited_within_a_time(plain):
    plain.clear_requests()
    get(plain, MAPS)
    assert plain.wait_for_requests(1, verb="list")[0].code == 200
    with pytest.raises(TimeoutError, match="1 of 2"):
        plain.wait_for_requests(2, timeout=0.1, verb="list")
    assert plain.count_requests(user_agent="urllib") == 1


def test_switches_and_watches(plain):
    streaming = f"{MAPS}?watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    plain.set_streaming_lists(False)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(plain.url + streaming)
    plain.set_bookmarks(False)
    plain.clear_faults()
    urllib.request.urlopen(plain.url + streaming).close()
    opened = urllib.request.urlopen(f"{plain.url}{MAPS}?watch=true", timeout=30)
    plain.close_watches()
    assert opened.read() == b""


def test_times_have_any_number_of_digits():
    second = datetime(2026, 1, 1, 0, 0, 5, tzinfo=timezone.utc)
    assert _time("2026-01-01T00:00:05Z") == second
    assert _time("2026-01-01T00:00:05.123456789Z") == second.replace(microsecond=123456)
    assert _time("2026-01-01T00:00:05.5Z") == second.replace(microsecond=500000)
    with pytest.raises(ValueError):
        _time("soon")
