"""Celery apps of their own: without a worker, with a broken broker, with worker processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery.exceptions import Reject
from celery_tools import app_of, task

from headgate.integrations.celery import TaskRefused, limit_tasks
from headgate.rules.model import RuleSet
from servers import Server, until


def test_without_a_worker() -> None:
    app = app_of()

    @task(app, "early")
    def early(number: int) -> int:
        return number

    gate = limit_tasks(app, "1/hour", on_refusal="retry", tasks=["early", "later"])
    app.finalize()

    @task(app, "later")
    def later() -> None: ...

    @task(app, "other")
    def other() -> None: ...

    assert [early(number) for number in range(3)] == [0, 1, 2]  # plain calls of a function
    assert early.apply((1,)).get() == 1
    with pytest.raises(TaskRefused, match="rule 'default'"):
        early.apply((2,)).get()  # at once, as nobody would wait for it to come back
    gate.close()


@pytest.mark.parametrize("late", [True, False])
def test_a_broker_that_fails_while_a_task_is_refused(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of()

    @task(app, "unlucky", acks_late=late)
    def unlucky() -> None: ...

    class Broken:
        def apply_async(self) -> None:
            raise OSError("the broker is gone")

    limit_tasks(app, "1/hour")
    app.finalize()
    monkeypatch.setattr(unlucky, "signature_from_request", lambda *_, **more: Broken())
    unlucky.push_request(called_directly=False, id="1", retries=0)
    try:
        unlucky.run()
        with pytest.raises(Reject if late else OSError, match="gone") as error:
            unlucky.run()
    finally:
        unlucky.pop_request()
    assert getattr(error.value, "requeue", True)


def test_a_task_waits_in_its_worker() -> None:
    app = app_of()

    @task(app, "patient")
    def patient() -> str:
        return "ran"

    limit_tasks(app, "1/100ms fixed-window", wait=5, on_refusal="raise")
    app.finalize()
    assert [patient.apply().get() for _ in range(3)] == ["ran"] * 3


def test_a_store_that_nobody_answers_for() -> None:
    app = app_of()

    @task(app, "work")
    def work() -> str:
        return "done"

    limit_tasks(app, "1/hour", store="redis://127.0.0.1:1/0?on_error=allow")
    app.finalize()
    assert [work.apply().get() for _ in range(3)] == ["done"] * 3


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="on_refusal"):
        limit_tasks(app_of(), "1/hour", on_refusal="drop")
    with pytest.raises(TypeError, match="one of the three"):
        limit_tasks(app_of())
    with pytest.raises(TypeError, match="wait"):
        limit_tasks(app_of(), rules=RuleSet(), wait=1)
    with pytest.raises(ValueError, match="a key is made of"):
        limit_tasks(app_of(), "1/hour", key="weather")


@contextlib.contextmanager
def worker_process(server: Server, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1] / "src")])
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "celery_workers", "worker", "--without-gossip",
         "--without-mingle", "--without-heartbeat", "-l", "error", *options],
        env={**os.environ, "PYTHONPATH": path, "BROKER_URL": server.url}, cwd=server.folder,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def test_worker_processes_share_a_limit() -> None:
    with Server() as server, server.client(decode_responses=True) as client:
        with (
            worker_process(server, "--pool", "prefork", "-c", "2", "-n", "one@%h") as one,
            worker_process(server, "--pool", "solo", "-n", "two@%h"),
        ):
            app = app_of(server.url)
            for number in range(40):
                app.send_task("step", (number,))
            until(lambda: client.llen("ran") + client.llen("refused") == 40, 60)
            one.terminate()  # both at once
        assert client.llen("ran") == 5
        assert client.lrange("refused", 0, 0)[0].startswith("TaskRefused: step: refused by rule")
