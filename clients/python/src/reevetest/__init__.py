"""Tests against reeve-apiserver: a Kubernetes API server that starts in milliseconds, and does on request what real servers and
networks do to clients on bad days.

    from reevetest import Server, faults

    with Server(crds=["config/crd/bases"]) as server:
        client = server.api_client()  # of the package kubernetes, if that is installed
        # The next creation is stored, and its answer is lost on the way.
        with server.fault(faults.lose_answer(), verb="create", times=1) as rule:
            ...
        assert rule.hits == 1

With pytest, the fixture ``reeve`` is a server that is back in its first state for each test.

The package depends on the standard library only. The program is ``binary``, or what the variable ``REEVE_APISERVER`` names, or in
``PATH``. It ends with the process that started it, however that ends.
"""

from . import faults
from .server import (
    BINARY_VARIABLE,
    Error,
    FaultRule,
    NotFound,
    Request,
    Server,
    StartError,
)

__all__ = [
    "BINARY_VARIABLE",
    "Error",
    "FaultRule",
    "NotFound",
    "Request",
    "Server",
    "StartError",
    "faults",
]
