from typing import Any

import pytest


@pytest.fixture(scope="session")
def reeve_options() -> dict[str, Any]:
    return {"rbac": True}
