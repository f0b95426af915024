"""SQLAlchemy: connections out of a pool, and how they come back."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import StaticPool
from sqlalchemy_tools import ONE, ask, new_engine, started

from headgate import Refused
from headgate.integrations.sqlalchemy import guard_engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with new_engine(tmp_path) as made:
        yield made


def test_connections_out_of_the_pool(engine: Engine) -> None:
    guard_engine(engine, "2 concurrent", per="connection", wait=0)
    with engine.connect() as one, engine.begin() as other:
        assert [conn.execute(ONE).scalar() for conn in (one, other)] == [1, 1]
        with pytest.raises(Refused, match="rule 'default'"):
            engine.connect()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), engine.begin():
            raise ZeroDivisionError
    with engine.connect(), engine.connect():
        pass


def test_a_refusal_leaves_the_pool_as_it_was(engine: Engine) -> None:
    made: list[Any] = []
    event.listen(engine, "connect", lambda dbapi_connection, record: made.append(record))
    with engine.connect(), engine.connect():
        pass
    guard_engine(engine, "1 concurrent", per="connection", wait=0)
    with engine.connect():
        for _ in range(5):
            with pytest.raises(Refused):
                engine.connect()
    assert len(made) == 2  # none was thrown away
    pool: Any = engine.pool
    assert pool.checkedout() == 0


def test_a_connection_waits(engine: Engine) -> None:
    guard_engine(engine, "1 concurrent", per="connection", wait=10)
    answers: list[Any] = []
    with engine.connect():
        threads = started(*[lambda: answers.append(ask(engine))] * 3)
        threads[0].join(0.05)
        assert not answers
    for thread in threads:
        thread.join(60)
    assert answers == [1, 1, 1]


def refused(engine: Engine) -> bool:
    try:
        engine.connect().close()
    except Refused:
        return True
    return False


def test_connections_come_back_however_they_end(engine: Engine) -> None:
    guard_engine(engine, "1 concurrent", per="connection", wait=0)
    conn = engine.connect()
    assert refused(engine)
    conn.invalidate()
    assert not refused(engine)
    conn.execute(ONE)  # which connects again
    assert refused(engine)
    del conn
    gc.collect()
    assert not refused(engine)
    raw = engine.raw_connection()
    assert refused(engine)
    raw.detach()
    assert not refused(engine)
    raw.close()
    with engine.connect():
        engine.dispose()
        assert refused(engine)  # the new pool is guarded as the old one was
    assert not refused(engine)


def test_other_listeners_of_the_pool(engine: Engine) -> None:
    guard_engine(engine, "1 concurrent", per="connection", wait=0)
    raises: list[Exception] = [DisconnectionError("once"), ValueError("of somebody else")]

    @event.listens_for(engine, "checkout")
    def checkout(*more: Any) -> None:
        if raises:
            raise raises.pop(0)

    with pytest.raises(ValueError, match="somebody else"):
        engine.connect()
    with engine.connect():
        assert refused(engine)
    raises.append(DisconnectionError("once"))
    with engine.connect():
        assert refused(engine)
    assert not refused(engine)


def test_a_pool_by_itself(engine: Engine) -> None:
    with pytest.raises(ValueError, match="per"):
        guard_engine(engine.pool, "1 concurrent", per="statement")
    guard_engine(engine.pool, "1 concurrent", wait=0)
    raw = engine.pool.connect()
    assert refused(engine)
    raw.close()
    assert not refused(engine)


def test_a_connection_that_is_out_several_times() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    guard_engine(engine, "2 concurrent", per="connection", wait=0)
    for _ in range(3):
        with engine.connect(), engine.connect():
            pass
    assert not refused(engine)  # nothing was left behind


def test_taken_off(engine: Engine) -> None:
    guard = guard_engine(engine, "1 concurrent", per="connection", wait=0)
    with engine.connect():
        assert refused(engine)
        guard.remove()
        assert not refused(engine)
    guard_engine(engine, gate=guard.gate)
    assert not refused(engine)


OTHER = """
import sys
from sqlalchemy import create_engine
from headgate.integrations.sqlalchemy import guard_engine
database, store = sys.argv[1:]
engine = create_engine(database)
guard_engine(engine, "1 concurrent", per="connection", store=store, wait=0)
with engine.connect():
    print("in", flush=True)
    sys.stdin.readline()
print("out", flush=True)
sys.stdin.readline()
"""


def test_processes_share_a_limit(engine: Engine, tmp_path: Path) -> None:
    store = f"zone://{tmp_path}/guard.zone?size=1MiB"
    guard_engine(engine, "1 concurrent", per="connection", store=store, wait=0)
    command = [sys.executable, "-c", OTHER, str(engine.url), store]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        assert refused(engine)
        print(file=other.stdin, flush=True)  # to the other process
        assert other.stdout.readline() == "out\n"
        assert not refused(engine)
        print(file=other.stdin, flush=True)  # to the other process
