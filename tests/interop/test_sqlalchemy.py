"""The guard of a database, on real engines with real pools and threads."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, select, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from sqlalchemy_tools import ONE, ask, meta, new_engine, started, things

from headgate import AsyncGate, Gate, ManualClock, Refused
from headgate.integrations.sqlalchemy import guard_engine, kind_of
from headgate.limit import Limit
from headgate.rules.model import Match, Rule, RuleSet
from servers import until


class Base(DeclarativeBase):
    metadata = meta


class Thing(Base):
    __table__ = things
    id: Mapped[int]


class Stay:
    """A function of the database that stays until it is told to go on."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.go.wait(60)
        with self._lock:
            self.inside -= 1
        return 1

    def known_to(self, engine: Engine) -> None:
        @event.listens_for(engine, "connect")
        def connected(dbapi_connection: Any, record: Any) -> None:
            dbapi_connection.create_function("stay", 0, self)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with new_engine(tmp_path) as made:
        yield made


@pytest.fixture
def stay(engine: Engine) -> Iterator[Stay]:
    made = Stay()
    made.known_to(engine)
    yield made
    made.go.set()


def rule(name: str, *limits: str, match: Match | None = None, **more: Any) -> Rule:
    return Rule(name, match or Match(), limits=tuple(map(Limit.parse, limits)), **more)


# -- statements


def test_a_statement_too_many_is_refused_and_the_rule_named(engine: Engine, stay: Stay) -> None:
    guard_engine(engine, "1 concurrent", wait=0)
    threads = started(lambda: ask(engine, text("select stay()")))
    until(lambda: stay.inside)
    with pytest.raises(Refused, match="rule 'default'"):
        ask(engine)
    stay.go.set()
    threads[0].join(60)
    assert ask(engine) == 1


def test_a_statement_waits_for_its_turn(engine: Engine, stay: Stay) -> None:
    guard_engine(engine, "2 concurrent", wait=10)
    answers: list[Any] = []
    threads = started(*[lambda: answers.append(ask(engine, text("select stay()")))] * 6)
    until(lambda: stay.inside == 2)
    stay.go.set()
    for thread in threads:
        thread.join(60)
    assert answers == [1] * 6
    assert stay.most == 2


def test_statements_are_counted_by_kind(engine: Engine) -> None:
    clock = ManualClock(1_000_000)
    gate = Gate(
        RuleSet((rule("writes", "2/minute", match=Match(methods=frozenset({"INSERT"}))),)),
        clock=clock,
    )
    guard_engine(engine, gate=gate)
    with engine.begin() as conn:
        conn.execute(insert(things), {"id": 1})
        conn.execute(insert(things), {"id": 2})
    with pytest.raises(Refused, match="rule 'writes'"), engine.begin() as conn:
        conn.execute(insert(things), {"id": 3})
    assert ask(engine, select(things.c.id).order_by(things.c.id.desc())) == 2
    clock.advance(120)
    with engine.begin() as conn:
        conn.execute(text("insert into things values (3)"))
    with engine.connect() as conn:
        assert len(conn.execute(select(things)).all()) == 3


def test_limits_as_text_by_kind(engine: Engine) -> None:
    guard_engine(engine, "1/hour", key="kind", wait=0)
    with engine.begin() as conn:
        conn.execute(insert(things), [{"id": 1}, {"id": 2}])  # one statement
        conn.execute(ONE)
        with pytest.raises(Refused, match="'SELECT'"):
            conn.execute(ONE)


def test_errors_give_back(engine: Engine) -> None:
    guard_engine(engine, "1 concurrent", wait=0)
    for _ in range(3):
        with pytest.raises(OperationalError):
            ask(engine, text("select nothing from nowhere"))
    assert ask(engine) == 1


def test_only_failures_count(engine: Engine) -> None:
    rules = RuleSet((rule("bad", "1/hour", match=Match(resources=("statement",)),
                          count="failures"),))  # fmt: skip
    guard_engine(engine, rules=rules)
    assert [ask(engine) for _ in range(3)] == [1, 1, 1]
    with pytest.raises(OperationalError):
        ask(engine, text("select nothing from nowhere"))
    with pytest.raises(Refused, match="rule 'bad'"):
        ask(engine)


def test_what_other_listeners_raise_leaves_nothing_behind(engine: Engine) -> None:
    guard_engine(engine, "1 concurrent", wait=0)
    wrong = [True]

    @event.listens_for(engine, "before_cursor_execute")
    def before(*more: Any) -> None:
        if wrong:
            raise ValueError("of somebody else")

    for _ in range(2):
        with pytest.raises(ValueError, match="somebody else"):
            ask(engine)
    wrong.clear()
    gc.collect()
    assert ask(engine) == 1


def test_many_parts_of_one_statement_hold_one_permit(engine: Engine) -> None:
    guard_engine(engine, "1 concurrent", wait=0)
    with engine.begin() as conn:
        many = insert(things).returning(things.c.id)
        got = conn.execution_options(insertmanyvalues_page_size=3).execute(
            many, [{"id": place} for place in range(10)]
        )
        assert len(got.all()) == 10
    assert ask(engine) == 1


def test_a_session(engine: Engine) -> None:
    guard = guard_engine(engine, "1 concurrent", "100/second", wait=0)
    with Session(engine) as session, session.begin():
        session.add_all([Thing(id=1), Thing(id=2)])
    with Session(engine) as session:
        assert len(session.scalars(select(Thing)).all()) == 2
    guard.gate.reload(RuleSet((rule("closed", "1/hour", "1/day"),)))
    with Session(engine) as session:
        session.scalars(select(Thing)).all()
        with pytest.raises(Refused, match="rule 'closed'"):
            session.scalars(select(Thing)).all()
        session.rollback()


# -- rules, stores, options


def test_rules_tell_statements_from_connections(engine: Engine) -> None:
    rules = RuleSet(
        (
            rule("out", "1 concurrent", match=Match(resources=("connection",))),
            rule("select", "1/hour", match=Match(frozenset({"SELECT"}))),
            rule("watched", "1/hour", match=Match(resources=("statement",)), shadow=True),
        )
    )
    guard = guard_engine(engine, rules=rules)
    seen: list[Any] = []
    guard.gate.on_verdict.append(lambda facts, verdict: seen.append(verdict.shadowed))
    with engine.connect() as conn:
        conn.execute(ONE)
        with pytest.raises(Refused, match="rule 'select'"):
            conn.execute(ONE)
        with pytest.raises(Refused, match="rule 'out'"):
            engine.connect()
        conn.execute(text("values (1)"))
    assert ("watched",) in seen


def test_who_asks(engine: Engine) -> None:
    guard_engine(
        engine, "1/hour", key=["user", "database"], wait=0,
        user=lambda conn: conn.get_execution_options().get("user"),
    )  # fmt: skip
    with engine.connect() as conn:
        for user in ("ann", "bob"):
            conn.execution_options(user=user).execute(ONE)
            with pytest.raises(Refused, match=user):
                conn.execute(ONE)
        conn.execution_options(user=None).execute(ONE)


def test_a_store_that_nobody_answers_for(engine: Engine) -> None:
    dead = "redis://127.0.0.1:1/0?on_error="
    guard = guard_engine(engine, "1/hour", store=dead + "allow", wait=0)
    assert [ask(engine) for _ in range(3)] == [1, 1, 1]
    guard.remove()
    guard_engine(engine, "1/hour", store=dead + "deny", wait=0)
    with pytest.raises(Refused):
        ask(engine)


def test_what_is_wrong_is_said(engine: Engine) -> None:
    with pytest.raises(TypeError, match="one of the three"):
        guard_engine(engine)
    with pytest.raises(ValueError, match="not 'query'"):
        guard_engine(engine, "1/hour", per="query")
    with pytest.raises(TypeError, match="wait"):
        guard_engine(engine, rules=RuleSet(), wait=1)
    with pytest.raises(TypeError, match="needs an Gate"):
        guard_engine(engine, gate=AsyncGate(RuleSet()))


# -- kinds


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("select 1", "SELECT"),
        ("  \n(select 1) union (select 2)", "SELECT"),
        ("-- of the shop\nUPDATE things SET id = 2", "UPDATE"),
        ("/* a */ -- b\n/* c */ delete from things", "DELETE"),
        ("/* never ends", ""),
        ("--", ""),
        ("", ""),
        ("with x as (select 1) select * from x", "WITH"),
        ("create_index()", "CREATE_INDEX"),
        ("?", ""),
    ],
)
def test_kinds(statement: str, kind: str) -> None:
    assert kind_of(statement) == kind


def test_kinds_of_what_is_compiled(engine: Engine) -> None:
    kinds: list[str] = []
    guard = guard_engine(engine, rules=RuleSet())
    guard.gate.on_verdict.append(lambda facts, verdict: kinds.append(facts.method))
    part = select(things.c.id).cte("part")
    with engine.begin() as conn:
        conn.execute(insert(things).from_select(["id"], select(part.c.id + 1)))
        conn.execute(select(part.c.id))
        conn.execute(things.update().where(things.c.id.in_(select(part.c.id))).values(id=1))
        conn.execute(things.delete())
    assert [kind for kind in kinds if kind] == ["INSERT", "SELECT", "UPDATE", "DELETE"]


# -- async engines


def test_an_async_engine(tmp_path: Path) -> None:
    pytest.importorskip("greenlet")
    pytest.importorskip("aiosqlite")
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/db.sqlite")
        guard = guard_engine(engine, "1 concurrent", per="connection", wait=0)
        async with engine.connect() as conn:
            assert (await conn.execute(ONE)).scalar() == 1
            with pytest.raises(Refused, match="rule 'default'"):
                await engine.connect()
        guard.remove()

        most = inside = 0
        guard = guard_engine(engine, "2 concurrent", per="connection", wait=10)

        async def work() -> None:
            nonlocal inside, most
            async with engine.connect() as conn:  # the loop goes on while this waits
                inside += 1
                most = max(most, inside)
                await conn.execute(ONE)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*[work() for _ in range(6)])
        assert most == 2

        async with engine.connect(), engine.connect():
            task = asyncio.create_task(work())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with engine.connect(), engine.connect():
            pass
        guard.remove()

        guard = guard_engine(engine, "1 concurrent", "2/hour", wait=0)
        async with engine.connect() as conn:
            with pytest.raises(OperationalError):
                await conn.execute(text("select nothing from nowhere"))
            assert (await conn.execute(ONE)).scalar() == 1
            with pytest.raises(Refused):
                await conn.execute(ONE)
        guard.remove()
        await engine.dispose()

    asyncio.run(main())
