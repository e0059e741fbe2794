"""What a rule does to the requests that it hits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from collections.abc import Mapping

__all__ = [
    "Fault",
    "close_after",
    "close_empty",
    "delay",
    "delay_answer",
    "lose_answer",
    "reset",
    "reset_after",
    "stale",
    "stall",
    "stall_after",
    "status",
    "text",
    "truncate_after",
]


@dataclass(frozen=True)
class Fault:
    """A fault; the functions of this module make one."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str | dict[str, Any]:
        """The form of the control API."""
        return {self.name: dict(self.options)} if self.options else self.name


def _answer(name: str, code: int, message: str, retry_after: int | None) -> Fault:
    options: dict[str, Any] = {"code": code, "message": message}
    if retry_after is not None:
        options["retryAfterSeconds"] = retry_after
    return Fault(name, options)


def status(code: int, message: str = "", *, retry_after: int | None = None) -> Fault:
    """Answers with a Status of this code, with the reason of the code. ``retry_after`` is in seconds."""
    return _answer("status", code, message, retry_after)


def text(code: int, message: str = "", *, retry_after: int | None = None) -> Fault:
    """Answers with plain text of this code, as proxies do, and priority and fairness with 429."""
    return _answer("text", code, message, retry_after)


def delay(seconds: float) -> Fault:
    """Waits before the request is processed."""
    return Fault("delay", {"seconds": seconds})


def delay_answer(seconds: float) -> Fault:
    """Waits after a write was stored, before the answer."""
    return Fault("delayAnswer", {"seconds": seconds})


def reset() -> Fault:
    """Breaks the connection before the request is processed."""
    return Fault("reset")


def lose_answer() -> Fault:
    """Processes the request, then breaks the connection: the client cannot tell whether it was stored."""
    return Fault("loseAnswer")


def stall() -> Fault:
    """Never answers; the connection stays open."""
    return Fault("stall")


def stale(resource_version: str) -> Fault:
    """Serves reads as of this version, as a server with an old cache does."""
    return Fault("stale", {"resourceVersion": resource_version})


def close_empty() -> Fault:
    """Ends a watch at once, with 200 and no event."""
    return Fault("closeEmpty")


def reset_after(pieces: int) -> Fault:
    """Breaks the connection after so many pieces of the answer (for a watch: batches of events)."""
    return Fault("resetAfter", {"pieces": pieces})


def close_after(pieces: int) -> Fault:
    """Ends the answer after so many pieces as if it were complete."""
    return Fault("closeAfter", {"pieces": pieces})


def truncate_after(pieces: int) -> Fault:
    """Sends half of the piece after so many, then ends the answer."""
    return Fault("truncateAfter", {"pieces": pieces})


def stall_after(pieces: int) -> Fault:
    """Sends so many pieces of the answer, then nothing more, with the connection open."""
    return Fault("stallAfter", {"pieces": pieces})
