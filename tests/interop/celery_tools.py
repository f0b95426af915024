"""What the tests of Celery share: apps and tasks that no other test sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery

CONF = {
    "worker_hijack_root_logger": False,
    "broker_connection_retry_on_startup": False,
    "result_backend": "cache+memory://",
    "task_default_queue": "celery",
}


def app_of(url: str = "memory://", **conf: Any) -> Any:
    """An app that is not the current one."""
    app = Celery("tests", broker=url, set_as_current=False)
    app.conf.update(CONF, **conf)
    return app


def task(app: Any, name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A task of this app, and not of all apps as it would be by default."""
    decorator: Callable[[Callable[..., Any]], Any] = app.task(name=name, shared=False, **options)
    return decorator
