"""What the tests of a store behind headgate:// share: its address."""

from __future__ import annotations

from client_tools import Service

LONG = "budget=30s"
EVER = "fixed-window first-hit"


def url(service: Service, *options: str) -> str:
    """Its address, with time enough on a machine that is busy."""
    return f"{service.url}?{'&'.join((LONG, *options))}"
