"""How many examples hypothesis tries, and one real server for the tests in `redis`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from servers import Server

settings.register_profile(
    "default",
    max_examples=int(os.environ.get("HEADGATE_EXAMPLES", "100")),
    deadline=None,  # a shared machine is slow at times
    derandomize="HEADGATE_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("default")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server for all tests of a process that do not bring one of their own."""
    from servers import Server  # which needs the signals of POSIX

    with Server() as running:
        yield running
