"""What the tests of `through` share: a rule that asks for it, and what is found inside of calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headgate import Gate
from headgate.gating import chain

__all__ = ["ORIGIN", "RULES", "WIDE", "asking", "async_blocks", "blocks", "nothing", "seen"]

RULES = json.dumps(
    {
        "version": 1,
        "rules": [{"name": "x", "match": {"resource": "db", "through": "/a"}, "limit": "1/hour"}],
    }
)
WIDE = "1000000/hour"
ORIGIN: dict[str, Any] = {"origin": lambda request: "batch"}


def asking(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate with a rule that asks what a call came in through, the first in this process."""
    monkeypatch.setattr(chain, "wanted", False)
    return Gate(RULES)


def seen() -> str:
    """What is around whoever asks."""
    around = chain.around.get()
    return " ".join([*around.chain, f"({around.origin})"])


def nothing() -> bool:
    return chain.around.get() == chain.Around()


def blocks() -> Iterator[bytes]:
    yield b""
    yield seen().encode()


async def async_blocks() -> AsyncIterator[bytes]:
    yield b""
    await asyncio.sleep(0)
    yield seen().encode()
