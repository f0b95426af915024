"""Limits for Celery's tasks, in real workers on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import chain
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Ignore
from celery_tools import app_of, task

from headgate import Facts, Gate, Limit, ManualClock
from headgate.integrations.celery import ORIGIN, TaskRefused, limit_tasks
from headgate.rules.model import KeyPart, Lists, Match, Otherwise, Rule, RuleSet
from servers import Server, until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def got(result: Any) -> Any:
    """What a task has returned."""
    return result.get(timeout=60, interval=0.01)


def rule(name: str, *limits: str, key: str = "", **more: Any) -> Rule:
    parts = tuple(KeyPart(*part.split(":")) for part in key.split())
    return Rule(name, key=parts, limits=tuple(map(Limit.parse, limits)), **more)


class Shop:
    """An app with a worker of several threads, and rules that each test makes its own.

    There is one for all tests, as a process can have but one worker at a time.
    """

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(1_000_000)
        self.gate = Gate(RuleSet(), clock=self.clock, functions={"sold_out": self.sold_out})
        self.refused: list[str] = []
        self.allowed: list[str] = []
        self.facts: list[Any] = []
        self.gate.on_verdict.append(self._note)
        self.ran: list[Any] = []
        self.inside = self.most = 0
        self.go = threading.Event()
        self.lock = threading.Lock()
        self.app = app_of(url)
        limit_tasks(
            self.app, gate=self.gate, jitter=0.01, poll=0.02, longest=0.05,
            user=lambda request: (request.headers or {}).get("user"),
            failed=lambda result: result == "bad",
        )  # fmt: skip

        @task(self.app, "order", bind=True, max_retries=0, acks_late=True)
        def order(this: Any, number: int = 0, *, customer: str = "") -> int:
            self.ran.append((number, customer, this.request.retries))
            return number + 1

        @task(self.app, "stay")
        def stay() -> None:
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            self.go.wait(60)
            with self.lock:
                self.inside -= 1

        @task(self.app, "end", bind=True, max_retries=1)
        def end(this: Any, way: str) -> str:
            self.ran.append((way, this.request.retries))
            if way == "raise":
                raise ZeroDivisionError
            if way == "ignore":
                raise Ignore
            if way == "again":
                raise this.retry(countdown=0)
            return way

        self.rejects = limit_tasks(self.app, gate=Gate(RuleSet()), on_refusal="reject")
        self.app.finalize()

        @task(self.app, "late")
        def late() -> str:
            return "ran"

        self.order, self.stay, self.end, self.late = order, stay, end, late

    def _note(self, facts: Any, verdict: Any) -> None:
        self.facts.append(facts)
        (self.allowed if verdict else self.refused).append(facts.resource)

    def sold_out(self, *args: Any, **kwargs: Any) -> str:
        return f"sold out: {args}"

    def free(self, permits: int) -> bool:
        """Whether so many permits can be had at once."""
        verdicts = [self.gate.check(Facts(resource="stay")) for _ in range(permits)]
        for verdict in verdicts:
            verdict.permit.release()
        return all(verdicts)

    def rules(self, *rules: Rule) -> None:
        """Begin anew, by these rules."""
        self.clock.advance(10 * 86_400)
        self.gate.reload(RuleSet(rules))
        for seen in (self.refused, self.allowed, self.facts, self.ran):
            seen.clear()
        self.go.clear()
        self.most = 0


@pytest.fixture(scope="module")
def running(server: Server) -> Iterator[Shop]:
    shop = Shop(server.url)
    with start_worker(
        shop.app, pool="threads", concurrency=4, perform_ping_check=False, queues="celery,other"
    ):
        yield shop


@pytest.fixture
def shop(running: Shop) -> Iterator[Shop]:
    running.rules()
    yield running
    running.go.set()
    running.rules()


# -- what a refused task does


def test_a_refused_task_comes_back_and_that_is_no_retry(shop: Shop) -> None:
    shop.rules(rule("slow", "1/hour fixed-window"))
    first = shop.order.delay(1)
    assert got(first) == 2
    second = shop.order.delay(2, customer="ann")
    until(lambda: len(shop.refused) > 2)  # more often than its max_retries
    assert second.state == "RETRY"
    assert isinstance(second.result, TaskRefused)
    assert second.result.rule == "slow"
    shop.clock.advance(3600)
    assert got(second) == 3
    assert shop.ran == [(1, "", 0), (2, "ann", 0)]


def test_what_follows_a_refused_task_follows_it_still(shop: Shop) -> None:
    shop.rules(rule("slow", "1/hour fixed-window"))
    last = chain(shop.order.s(1), shop.order.s()).delay()
    until(lambda: shop.refused)
    shop.clock.advance(3600)
    assert got(last) == 3


def test_retries_of_its_own_count_as_ever(shop: Shop) -> None:
    shop.rules(rule("slow", "1/hour fixed-window"))
    result = shop.end.delay("again")
    until(lambda: shop.refused)
    shop.clock.advance(3600)
    until(lambda: result.state == "FAILURE")
    assert shop.ran == [("again", 0), ("again", 1)]


def test_a_task_that_would_never_pass_fails(shop: Shop) -> None:
    shop.rules(rule("none", "5/hour", deny=Lists(origins=("spam",))))
    result = shop.order.apply_async((1,), headers={ORIGIN: "spam"})
    with pytest.raises(TaskRefused, match="order: refused by rule 'none'") as error:
        got(result)
    assert error.value.rule == "none"
    assert error.value.retry_after == float("inf")
    assert got(shop.order.apply_async((1,), headers={ORIGIN: "web"})) == 2


def test_otherwise(shop: Shop) -> None:
    data = rule("data", "1/hour", key="resource", otherwise=Otherwise("data", {"queued": True}),
                match=Match(resources=("order",)))  # fmt: skip
    call = rule("call", "1/hour", key="resource", otherwise=Otherwise("function", "sold_out"),
                match=Match(resources=("end",)))  # fmt: skip
    shop.rules(data, call)
    assert [got(shop.order.delay(1)) for _ in range(2)] == [2, {"queued": True}]
    assert [got(shop.end.delay("well")) for _ in range(2)] == [
        "well", "sold out: ('well',)",
    ]  # fmt: skip


# -- what is counted


@pytest.mark.parametrize(
    ("key", "same", "other"),
    [
        ("resource", {}, None),
        ("attribute:queue", {}, {"queue": "other"}),
        ("arg:customer", {"kwargs": {"customer": "ann"}}, {"kwargs": {"customer": "bob"}}),
        ("arg:number", {"args": [1]}, {"args": [2]}),
        ("arg:0", {"args": [1]}, {"args": [2]}),
        ("user", {"headers": {"user": "ann"}}, {"headers": {"user": "bob"}}),
        ("header:X-Tenant", {"headers": {"X-Tenant": "a"}}, {"headers": {"X-Tenant": "b"}}),
        ("origin", {"headers": {ORIGIN: "a"}}, {"headers": {ORIGIN: "b"}}),
    ],
)
def test_keys(shop: Shop, key: str, same: dict[str, Any], other: dict[str, Any] | None) -> None:
    answer = Otherwise("data", "refused")
    shop.rules(rule("one", "1/hour fixed-window", key=key, otherwise=answer))

    def send(**how: Any) -> Any:
        return got(shop.order.apply_async(**how))

    assert send(**same) != "refused"
    assert send(**same) == "refused"
    if other is None:
        assert got(shop.end.delay("well")) == "well"
    else:
        assert send(**other) != "refused"


def test_as_many_at_once_as_there_are_permits(shop: Shop) -> None:
    shop.rules(rule("two", "2 concurrent"))
    results = [shop.stay.delay() for _ in range(4)]
    until(lambda: shop.inside == 2 and shop.refused)
    shop.go.set()
    for result in results:
        got(result)
    assert shop.most == 2
    with pytest.raises(ZeroDivisionError):
        got(shop.end.delay("raise"))
    shop.end.delay("ignore")
    until(lambda: ("ignore", 0) in shop.ran)
    until(lambda: shop.free(2), 60)  # all came back


def test_only_failures_count(shop: Shop) -> None:
    answer = Otherwise("data", "refused")
    shop.rules(rule("bad", "2/hour fixed-window", count="failures", otherwise=answer))
    assert [got(shop.end.delay("well")) for _ in range(4)] == ["well"] * 4
    with pytest.raises(ZeroDivisionError):
        got(shop.end.delay("raise"))
    assert [got(shop.end.delay("bad")) for _ in range(2)] == ["bad", "refused"]


def test_shadow(shop: Shop) -> None:
    shop.rules(rule("watched", "1/hour", shadow=True))
    assert [got(shop.order.delay(n)) for n in range(3)] == [1, 2, 3]


# -- other ways


def test_a_task_may_be_rejected(shop: Shop, server: Server) -> None:
    shop.rejects.reload(RuleSet((rule("few", "2/hour"),)))
    seen: list[bool] = []
    shop.rejects.on_verdict.append(lambda facts, verdict: seen.append(verdict.allowed))
    for number in range(4):
        shop.order.delay(number)
    with server.client() as client:
        until(lambda: len(seen) == 4 and not client.hlen("unacked"))
        assert client.llen("celery") == 0
    shop.rejects.reload(RuleSet())
    assert len(shop.ran) == 2
    assert got(shop.order.delay(1)) == 2


def test_tasks_that_come_after_the_app_was_made(shop: Shop) -> None:
    shop.rules(rule("one", "1/hour", otherwise=Otherwise("data", "refused")))
    assert [got(shop.late.delay()) for _ in range(2)] == ["ran", "refused"]
