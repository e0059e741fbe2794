"""Fixtures for pytest, which finds them by itself when the package is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .server import Server


@pytest.fixture(scope="session")
def reeve_options() -> dict[str, Any]:
    """The arguments of the server of the session. Override it in conftest.py:

    @pytest.fixture(scope="session")
    def reeve_options():
        return {"crds": ["config/crd/bases"], "rbac": True}
    """
    return {}


@pytest.fixture(scope="session")
def reeve_session(reeve_options: dict[str, Any]) -> Iterator[Server]:
    """The server of the session, as the tests leave it."""
    with Server(**reeve_options) as server:
        yield server


@pytest.fixture
def reeve(reeve_session: Server) -> Iterator[Server]:
    """The server of the session, in the state of its start: it is reset after each test."""
    yield reeve_session
    reeve_session._reset_when_up()
