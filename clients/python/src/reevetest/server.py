"""A server as a child process, and its control API."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any, Union

from .faults import Fault

BINARY_VARIABLE = "REEVE_APISERVER"
"""The environment variable that names the program."""

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_CALL_SECONDS = 60.0
_LOG_LINES = 200
_RETRY_SECONDS = 0.1
_PathLike = Union[str, "os.PathLike[str]"]


class Error(Exception):
    """A refusal of the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        """The HTTP status code."""
        self.message = message
        """The reason, for people."""


class NotFound(Error):
    """There is no such rule or snapshot."""


class StartError(Exception):
    """The program did not become ready. The text has the end of its log."""


@dataclass(frozen=True)
class Request:
    """A request of the log."""

    time: datetime
    verb: str
    path: str
    query: str
    group: str
    resource: str
    namespace: str
    name: str
    subresource: str
    user: str
    user_agent: str
    code: int
    """0 where the connection was broken in place of an answer."""
    body: Any = None
    """JSON as it is, other text as text, other bytes in base64; ``None`` unless bodies were requested."""


class FaultRule:
    """A rule in force."""

    def __init__(self, server: Server, rule_id: str) -> None:
        self._server = server
        self._id = rule_id
        self._last: int | None = None

    @property
    def hits(self) -> int:
        """The number of requests that the rule hit; after :meth:`remove`, until then."""
        if self._last is not None:
            return self._last
        return int(self._server._call("GET", f"faults/{self._id}")["hits"])

    def remove(self) -> None:
        """Removes the rule. Does nothing if it was removed."""
        if self._last is not None:
            return
        try:
            self._last = int(self._server._call("DELETE", f"faults/{self._id}")["hits"])
        except NotFound:
            # A reset removed it with its count.
            self._last = 0


class Server:
    """A running server. It starts with the object and stops at :meth:`stop`, or at the end of a ``with``.

    :param crds: files and folders of CustomResourceDefinitions to install before the server is ready
    :param manifests: files and folders of objects to create before the server is ready
    :param tls: serve HTTPS; the kubeconfig carries the authority
    :param rbac: check requests against the stored roles and bindings; it implies HTTPS
    :param flags: further words of the command line
    :param binary: the path of the program
    :raises StartError: when the program does not become ready
    """

    url: str
    """The address, such as ``http://127.0.0.1:43127``."""
    port: int
    kubeconfig: str
    """A kubeconfig with the rights of an administrator."""
    certificate_authority: str | None
    """The authority that clients trust, in PEM; ``None`` without TLS."""
    token: str | None
    """The administrator's bearer token; ``None`` where requests need none."""

    def __init__(
        self,
        *,
        crds: Sequence[_PathLike] = (),
        manifests: Sequence[_PathLike] = (),
        tls: bool = False,
        rbac: bool = False,
        flags: Sequence[str] = (),
        binary: _PathLike | None = None,
    ) -> None:
        for paths in (crds, manifests, flags):
            if isinstance(paths, (str, os.PathLike)):
                raise TypeError(f"{paths!r} is one path: pass a list")
        words = [_find(binary), "--listen", "127.0.0.1:0", "--output", "json", "--control", "--exit-with-stdin"]
        for path in crds:
            words += ["--crd-dir", os.fspath(path)]
        for path in manifests:
            words += ["--manifests", os.fspath(path)]
        words += ["--tls"] if tls else []
        words += ["--authorization-mode", "RBAC"] if rbac else []
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._files: list[str] = []
        self._process = subprocess.Popen(
            [*words, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        try:
            ready = json.loads(self._first_line())
        except BaseException:
            self._process.kill()
            self.stop()
            raise
        self.url = ready["url"]
        self.port = ready["port"]
        self.kubeconfig = ready["kubeconfig"]
        self.certificate_authority = ready.get("certificateAuthority")
        self.token = ready.get("token")
        # Without the proxies of the environment.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.certificate_authority:
            context = ssl.create_default_context(cadata=self.certificate_authority)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line)

    def _first_line(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.append(stdout.readline()), daemon=True)
        reader.start()
        reader.join(_START_SECONDS)
        if not lines:
            raise StartError(f"reeve-apiserver was not ready within {_START_SECONDS} s\n{self.log}")
        if not lines[0]:
            self._process.wait(_STOP_SECONDS)
            self._reader.join(_STOP_SECONDS)
            raise StartError(f"reeve-apiserver ended with {self._process.returncode}\n{self.log}")
        return lines[0]

    @property
    def log(self) -> str:
        """The end of the program's log. The variable ``RUST_LOG`` sets its level."""
        return "".join(self._log)

    def stop(self) -> None:
        """Stops the server and waits for its end. It may be called again."""
        if self._process.stdin is not None:
            # The program stops at the end of its standard input, as when this process is killed.
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            # A process that was forked meanwhile holds the other end, too.
            self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_STOP_SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        for path in self._files:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._files.clear()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # Clients

    def write_kubeconfig(self) -> str:
        """Writes the kubeconfig to a file that goes with the server, and returns its path: for kubectl and other processes."""
        handle, path = tempfile.mkstemp(prefix="reevetest-", suffix=".kubeconfig")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self.kubeconfig)
        self._files.append(path)
        return path

    def api_client(self) -> Any:
        """A ``kubernetes.client.ApiClient`` of an administrator. Needs the package ``kubernetes``."""
        import yaml
        from kubernetes import config

        make: Any = config.new_client_from_config_dict
        return make(yaml.safe_load(self.kubeconfig))

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        timeout: float = _CALL_SECONDS,
    ) -> Any:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}/reeve/v1/{path}", content, headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            try:
                text = json.loads(text)["message"]
            except (ValueError, KeyError, TypeError):
                pass
            kind = NotFound if error.code == 404 else Error
            raise kind(error.code, text) from None

    # Faults

    def add_fault(
        self,
        fault: Fault,
        *,
        verb: str | None = None,
        group: str | None = None,
        resource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        user_agent: str | None = None,
        after: int = 0,
        times: int | None = None,
        probability: float | None = None,
    ) -> FaultRule:
        """Adds a rule after the existing ones.

        :param verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete`` or ``deletecollection``
        :param group: the API group; ``""`` is core
        :param resource: the plural resource; for other paths the whole path, such as ``/version``
        :param subresource: such as ``status``; ``""`` is the object itself
        :param user_agent: a part of the header
        :param after: so many matching requests pass first
        :param times: so many requests are hit, then none; all by default
        :param probability: each matching request is hit with this probability
        """
        rule: dict[str, Any] = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "namespace": namespace,
            "name": name,
            "subresource": subresource,
            "userAgent": user_agent,
            "times": times,
            "probability": probability,
        }
        rule = {field: value for field, value in rule.items() if value is not None}
        rule["after"] = after
        rule["fault"] = fault.to_json()
        return FaultRule(self, self._call("POST", "faults", rule)["id"])

    @contextlib.contextmanager
    def fault(self, fault: Fault, **rule: Any) -> Iterator[FaultRule]:
        """As :meth:`add_fault`; the rule is removed at the end of the ``with``, and keeps its count."""
        added = self.add_fault(fault, **rule)
        try:
            yield added
        finally:
            added.remove()

    def clear_faults(self) -> None:
        """Removes all rules, and turns bookmarks and streaming lists on."""
        self._call("DELETE", "faults")

    def set_bookmarks(self, on: bool) -> None:
        """Turns the bookmarks of all watches on or off."""
        self._call("PATCH", "switches", {"bookmarks": on})

    def set_streaming_lists(self, on: bool) -> None:
        """Allows or refuses watches that begin with a list (``sendInitialEvents``)."""
        self._call("PATCH", "switches", {"streamingLists": on})

    def close_watches(self) -> None:
        """Ends all open watches, as a server that restarts."""
        self._call("DELETE", "watches")

    def outage(self, lasts: float | timedelta) -> None:
        """Takes the server down for a time (in seconds), a moment after the call. It comes back at the same address without its
        history, so older watches get 410."""
        self._call("POST", "outage", {"seconds": _seconds(lasts)})

    # The log of requests

    def requests(self, *, bodies: bool = False, **selected: str | int) -> list[Request]:
        """The newest requests of the log, at most 10,000, oldest first.

        ``selected`` has any of ``verb``, ``group``, ``resource``, ``namespace``, ``name``, ``subresource``, ``user``, ``user_agent`` (a
        part of it), ``path`` and ``code``.
        """
        return self._requests({"limit": 10_000, "bodies": "true" if bodies else "false"}, selected)[1]

    def count_requests(self, **selected: str | int) -> int:
        """The number of requests of the log that are selected, as for :meth:`requests`."""
        return self._requests({"limit": 0}, selected)[0]

    def wait_for_requests(
        self, count: int, *, timeout: float = 30.0, bodies: bool = False, **selected: str | int
    ) -> list[Request]:
        """Waits until at least ``count`` requests are selected, and returns them.

        :raises TimeoutError: after ``timeout`` seconds
        """
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            options = {"limit": 10_000, "atLeast": count, "bodies": "true" if bodies else "false"}
            options["waitSeconds"] = max(0, min(30, math.ceil(left)))
            try:
                found, requests = self._requests(options, selected)
            except OSError:
                # It may be an outage.
                if left <= 0:
                    raise
                time.sleep(_RETRY_SECONDS)
                continue
            if found >= count:
                return requests
            if left <= 0:
                raise TimeoutError(f"{found} of {count} requests {selected} came within {timeout} s")

    def _requests(
        self, options: dict[str, Any], selected: dict[str, str | int]
    ) -> tuple[int, list[Request]]:
        names = {"user_agent": "userAgent"}
        query = {**options, **{names.get(name, name): value for name, value in selected.items()}}
        answer = self._call("GET", f"requests?{urllib.parse.urlencode(query)}")
        requests = []
        for item in answer["items"]:
            item["user_agent"] = item.pop("userAgent")
            item["time"] = _time(item["time"])
            requests.append(Request(**item))
        return answer["count"], requests

    def clear_requests(self) -> None:
        """Clears the log."""
        self._call("DELETE", "requests")

    # State

    def snapshot(self, name: str) -> None:
        """Keeps the objects and custom kinds under a name, in place of a former snapshot of that name."""
        self._call("PUT", f"snapshots/{urllib.parse.quote(name, safe='')}")

    def delete_snapshot(self, name: str) -> None:
        """Removes a snapshot."""
        self._call("DELETE", f"snapshots/{urllib.parse.quote(name, safe='')}")

    def restore(self, name: str) -> int:
        """Brings the objects and custom kinds back to a snapshot, and returns how many objects were written or removed for that.
        Clients see writes: watches go on, and caches follow."""
        return int(self._call("POST", f"snapshots/{urllib.parse.quote(name, safe='')}/restore")["written"])

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Brings the objects and custom kinds back at the end of the ``with``."""
        name = f"restored-{uuid.uuid4()}"
        self.snapshot(name)
        try:
            yield
        finally:
            self.restore(name)
            self.delete_snapshot(name)

    def reset(self) -> None:
        """Brings the server back to its state after the start, without rules and with an empty log of requests. Snapshots and the
        clock stay."""
        self._call("POST", "reset")

    def _reset_when_up(self) -> None:
        """As :meth:`reset`, also while the server is away."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                return self.reset()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)

    # Time and history

    def now(self) -> datetime:
        """The time of the server's clock."""
        return _time(self._call("GET", "clock")["now"])

    def advance(self, by: float | timedelta) -> datetime:
        """Sets the server's clock forward (in seconds), and returns its time. Tokens, certificates, Events and history become older;
        timers of open requests and the clocks of clients do not move."""
        return _time(self._call("POST", "clock/advance", {"seconds": _seconds(by)})["now"])

    def compact(self, resource_version: str | None = None) -> None:
        """Compacts the history up to and including a version (default: all), as etcd does every few minutes. Pages and reads of the
        past get 410, and watches resume."""
        self._call("POST", "history/compact", _up_to(resource_version))

    def forget_history(self, resource_version: str | None = None) -> None:
        """Drops the history up to and including a version (default: all). Watches that start from an older version get 410, too. Open
        watches go on."""
        self._call("POST", "history/forget", _up_to(resource_version))


def _find(binary: _PathLike | None) -> str:
    named = os.fspath(binary) if binary is not None else os.environ.get(BINARY_VARIABLE) or "reeve-apiserver"
    found = shutil.which(named)
    if found is None:
        raise StartError(
            f"there is no program {named!r}; build it (docs/any-language.md says how), or name it in {BINARY_VARIABLE}"
        )
    return found


def _seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def _up_to(resource_version: str | None) -> dict[str, Any]:
    return {} if resource_version is None else {"resourceVersion": resource_version}


def _time(text: str) -> datetime:
    # Python before 3.11 reads neither a Z nor other numbers of digits than 3 and 6.
    matched = re.fullmatch(r"([^.Z]+)(?:\.(\d+))?Z", text)
    if matched is None:
        raise ValueError(f"{text!r} is not a time")
    whole = datetime.strptime(matched[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return whole + timedelta(microseconds=int((matched[2] or "0").ljust(6, "0")[:6]))
