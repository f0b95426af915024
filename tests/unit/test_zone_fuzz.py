"""Damaged zones: an error or an answer, never a crash, never a hang.

Each round runs in a process of its own, so that a crash would be seen.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import headgate
from headgate import Ask, Limit, StoreError
from headgate.stores.zone import ZoneStore
from headgate.stores.zone.looking import look_at, look_at_keys
from headgate.stores.zone.places import JOURNAL

LIMITS = [
    Limit.parse(text)
    for text in ("9/minute", "9/minute cells 30", "90/minute sliding-log", "9 concurrent")
]
SIZE = 1 << 16
ROUNDS = int(os.environ.get("HEADGATE_ROUNDS", "40"))
DAMAGES = ("anywhere", "header", "journal", "used", "words", "truncated", "zeros")


def make(path: Path) -> bytes:
    store = ZoneStore(path, size=SIZE, keys=True)
    for number in range(60):
        for limit in LIMITS:
            key = f"user {number % 20}"
            store.decide([Ask("take", limit, key, token=number + 1, ttl=number * 1000)])
    store.assign("", LIMITS[0].id, "user 1", LIMITS[2])
    store.close()
    return path.read_bytes()


def damaged(data: bytes, how: str, chance: random.Random) -> bytes:
    spoilt = bytearray(data)
    if how == "truncated":
        return bytes(spoilt[: chance.randrange(len(spoilt))])
    parts = {
        "header": (0, JOURNAL * 8),
        "journal": (64 * 8, JOURNAL * 8 + 8192),
        "used": (JOURNAL * 8 + 8192, len(data) // 2),
    }
    first, last = parts.get(how, (0, len(data)))
    for _ in range(chance.choice((1, 5, 50, 500))):
        at = chance.randrange(first, last)
        if how == "zeros":
            spoilt[at : at + 64] = bytes(len(spoilt[at : at + 64]))
        elif how == "words":  # numbers that could be links
            at = at // 8 * 8
            number = chance.choice((0, 1, 2, 3, 700, 1 << 31, 1 << 36, -1, 1 << 62))
            spoilt[at : at + 8] = number.to_bytes(8, sys.byteorder, signed=True)
        else:
            spoilt[at] = chance.randrange(256)
    return bytes(spoilt)


def use(path: Path) -> None:
    """Everything one can do with a zone; a StoreError is an answer."""
    for look in (lambda: look_at(str(path)), lambda: look_at_keys(str(path), 5)):
        with contextlib.suppress(StoreError):
            look()
    try:
        store = ZoneStore(path, patience=0.02)  # a damaged lock may look held
    except StoreError:
        return
    calls: list[Callable[[], object]] = [
        lambda: store.assign("", LIMITS[1].id, "user 2", LIMITS[0]),
        lambda: store.assigned("", LIMITS[0].id, "user 1"),
        lambda: store.token(),
        lambda: store.top(5),
        lambda: store.stat(),
    ]
    for number in range(8):
        for limit in LIMITS:
            for op in ("take", "check", "charge", "reset", "settle", "release"):
                ask = Ask(op, limit, f"user {number * 3}", 1, token=number + 1, ttl=10**6)
                calls.append(partial(store.decide, [ask, ask]))
    for call in calls:
        with contextlib.suppress(StoreError):
            call()


def rounds(folder: str, how: str, seed: int, count: int) -> None:
    path = Path(folder) / f"fuzz {how}"
    chance = random.Random(seed)
    data = make(path)
    for number in range(count):
        path.unlink()
        path.write_bytes(damaged(data, how, chance))
        begin = time.monotonic()
        use(path)
        assert time.monotonic() - begin < 20, (how, number)


@pytest.mark.parametrize("how", DAMAGES)
def test_fuzz(how: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30) if "HEADGATE_ROUNDS" in os.environ else 7
    here = (str(Path(__file__).parent), str(Path(headgate.__file__).parent.parent))
    probe = (
        f"import sys; sys.path[:0] = {here!r}; import test_zone_fuzz; "
        f"test_zone_fuzz.rounds({str(tmp_path)!r}, {how!r}, {seed}, {ROUNDS})"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", probe], capture_output=True, timeout=250
    )
    assert done.returncode == 0, (seed, done.stderr.decode()[-3000:])
