"""What the tests of Flask share: an application to limit, and what it answers."""

from __future__ import annotations

from typing import Any

from flask import Flask
from wsgi_tools import START, serving

from headgate import ManualClock
from headgate.integrations.flask import RateLimit


def shop(*limits: str, **words: Any) -> tuple[Flask, RateLimit]:
    """An application, and its limits on a clock that stands still."""
    app = Flask("shop", static_folder=None)
    app.logger.disabled = True
    if "store" not in words:
        words["clock"] = ManualClock(START)
    return app, RateLimit(app, *limits, **words)


def statuses(app: Flask, *paths: str, method: str = "GET") -> list[int]:
    """What paths answer, over HTTP."""
    with serving(app) as client:
        return [client.ask(path, method).status for path in paths]
