"""An app whose workers run as processes of their own; the tests of Celery start them."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals

import redis
from headgate.integrations.celery import limit_tasks

URL = os.environ["BROKER_URL"]
app = Celery("workers", broker=URL)
app.conf.update(worker_hijack_root_logger=False, task_ignore_result=True)
limit_tasks(app, "5/30d fixed-window", store=f"{URL}?budget=10s", on_refusal="raise")


@app.task(name="step", acks_late=True)  # type: ignore[untyped-decorator] # celery has no types
def step(number: int) -> None:
    redis.Redis.from_url(URL).rpush("ran", f"{os.getpid()}:{number}")


@signals.task_failure.connect(weak=False)  # type: ignore[untyped-decorator] # celery has no types
def failed(exception: BaseException, **more: Any) -> None:
    redis.Redis.from_url(URL).rpush("refused", f"{type(exception).__name__}: {exception}")
