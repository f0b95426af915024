"""The compiled form: what it says of itself, that it is up to date, and what is C alone."""

from __future__ import annotations

import gc
import os
import pickle
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate import Limiter, ManualClock, MemoryStore, compiled

ROOT = Path(__file__).parents[2]
native = pytest.mark.skipif(not compiled, reason=repr(compiled))


def say(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True, capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    return done.stdout.strip()


def test_it_says_which_form_runs_and_why() -> None:
    asked = "import headgate; print(bool(headgate.compiled), headgate.compiled)"
    assert say(asked, HEADGATE_PURE="1") == "False <pure Python: HEADGATE_PURE is set>"
    if compiled:
        assert say(asked, HEADGATE_PURE="").startswith("True <compiled: built by Cython ")


@native
def test_what_was_built_is_what_is_here() -> None:
    built = import_module("headgate._native.built")
    here = runpy.run_path(str(ROOT / "setup.py"))["digest"]
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        assert here() == built.DIGEST, "the sources have changed since; run `make build`"
    finally:
        os.chdir(before)


@native
def test_both_names_are_one_module() -> None:
    import headgate.decision

    assert headgate.decision.__name__ == "headgate._native.decision"
    assert type(Limiter("5/s").hit()) is headgate.Decision


def test_decisions_travel_between_the_forms() -> None:
    refused = Limiter("1/hour fixed-window", clock=ManualClock(0)).peek(cost=2)
    sent = pickle.dumps(refused).hex()
    code = f"import headgate, pickle; print(repr(pickle.loads(bytes.fromhex({sent!r}))))"
    for form in ("0", "1"):
        assert say(code, HEADGATE_PURE=form) == repr(refused)


@native
def test_siphash_is_siphash() -> None:
    from headgate._native.table import sip

    key = int.from_bytes(bytes(range(8)), "little"), int.from_bytes(bytes(range(8, 16)), "little")
    # The published example of its authors, for SipHash-2-4.
    assert sip(bytes(range(15)), *key, 2, 4) == 0xA129CA6149BE45E5


@native
@pytest.mark.parametrize("seed", ["0", "1234", "random"])
def test_keys_that_look_alike_in_memory_are_apart(seed: str) -> None:
    code = (
        "from headgate import Limiter; hit = Limiter('1/hour').hit; "
        r"keys = ['\xff\x011:a', b'\xff\x011:a', ('a',), 'a', '\u01ff', 'naïve', b'\xff\x00']; "
        "print(all(hit(k) for k in keys), not any(hit(k) for k in keys), hit('naïve'.encode()))"
    )
    assert say(code, PYTHONHASHSEED=seed).startswith("True True <Decision refused")


@native
@pytest.mark.parametrize("count", [10, 5_000, 100_000])
def test_a_table_is_a_dict(count: int) -> None:
    import random

    from headgate._native.table import Table

    draw = random.Random(count)
    limit = headgate.Limit.parse("5/hour fixed-window")
    table: Any = Table(("", ""), limit, {})
    twin: dict[int, tuple[int, int, int]] = {}
    # Some hashes share their first bits, so that segments are filled unevenly.
    pool = [draw.choice([draw.getrandbits(64), draw.getrandbits(40)]) or 1 for _ in range(count)]
    for _ in range(4 * count):
        key = draw.choice(pool)
        if draw.random() < 0.6:
            twin[key] = (draw.randrange(9), draw.randrange(9), draw.randrange(9))
            table.write(key, table.rule, twin[key])
        elif key in twin:
            del twin[key]
            table.forget(key)
    assert len(table) == len(twin)
    assert all(table.read(key, table.rule, 0) == twin.get(key) for key in pool)
    assert table.bytes() < 80 * len(twin) + 300_000


@native
def test_a_table_stays_near_32_bytes_a_key() -> None:
    limiter = Limiter("500/hour gcra", clock=ManualClock(1_000_000))
    for number in range(300_000):
        limiter.hit(f"user:{number}")
    assert isinstance(limiter.store, MemoryStore)
    (table,) = limiter.store._tables.values()
    assert table.bytes() / len(table) < 40  # type: ignore[attr-defined] # the compiled table's


@native
def test_states_that_were_packed_go_on_where_they_were(manual_clock: ManualClock) -> None:
    limiter = Limiter("3/minute sliding-log", clock=manual_clock)
    cells = Limiter("3/minute cells 6", clock=manual_clock)
    for _ in range(3):
        for number in range(500):  # many more than stay unpacked
            assert limiter.hit(f"user:{number}")
            assert cells.hit(f"user:{number}")
        manual_clock.advance(1)
    assert not any(limiter.hit(f"user:{number}") for number in range(500))
    assert not any(cells.hit(f"user:{number}") for number in range(500))


@native
def test_many_hits_are_the_hits() -> None:
    limiter = Limiter("5/day fixed-window")
    keys: list[Any] = [f"user:{n}" for n in range(300)] + ["naïve", b"raw", ("a", "b"), "", "a\0b"]
    limiter.hit("user:7")
    found = limiter.hit_many(keys * 7)
    assert [sum(bool(d) for d in found[n :: len(keys)]) for n in range(len(keys))] == [
        4 if key == "user:7" else 5 for key in keys
    ]
    again = limiter.hit_many(keys)
    assert not any(again)
    assert {type(decision).__name__ for decision in again} == {"Refusal"}
    one = limiter.hit("user:3")
    assert (one.remaining, one.cost, one.limit) == (0, 1, again[3].limit)
    assert limiter.hit_many([]) == []


@native
def test_many_hits_count_their_references() -> None:
    limiter = Limiter("5/day fixed-window")
    keys = [f"user:{n}" for n in range(1000)]
    kept = limiter.hit_many(keys)
    source: Any = kept[0]._source
    before = sys.getrefcount(source), sys.getrefcount(None)
    found = limiter.hit_many(keys * 3)
    assert gc.is_tracked(found)
    assert not any(gc.is_tracked(decision) for decision in found)
    assert sys.getrefcount(source) == before[0] + len(found)
    assert [sys.getrefcount(keys[0]), sys.getrefcount(found[0])] == [2, 2]
    del found
    assert sys.getrefcount(source) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 100


@native
def test_keys_may_be_changed_while_they_are_decided() -> None:
    class Meddler(ManualClock):
        def micros(self) -> int:
            keys.clear()
            return super().micros()

    names = [f"user:{n}" for n in range(100)]
    keys: list[Any] = []
    limiter = Limiter("5/day fixed-window", clock=Meddler(1_000_000))
    for _ in range(2):  # new keys, and known ones
        keys[:] = names
        found = limiter.hit_many(keys)
        assert len(found) == 100
        assert not keys
    assert all(limiter.peek(name).remaining == 3 for name in names)


@native
def test_a_longer_decision_keeps_the_short_way_out() -> None:
    store = MemoryStore(clock=ManualClock(1_000_000))
    limiter = Limiter("5/hour", store=store)
    limiter.hit("k")
    with store._lock, pytest.raises(headgate.StoreError, match="middle of its own decision"):
        limiter.hit("k")
    assert limiter.hit("k").remaining == 3


def test_the_build_says_in_one_line_that_it_was_skipped(tmp_path: Path) -> None:
    """Without a compiler the install goes on as pure Python."""
    pytest.importorskip("Cython")
    for part in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / part).write_bytes((ROOT / part).read_bytes())
    (tmp_path / "src").symlink_to(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "lib"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "CC": "/no/such/compiler", "HEADGATE_PURE": ""},
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if line.startswith("headgate:")]
    assert len(told) == 1
    assert told[0].startswith("headgate: pure Python, not compiled: ")
    assert not list(tmp_path.rglob("lib/**/built.py"))
