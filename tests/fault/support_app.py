"""A tiny WSGI application with one limit for all of its workers; the store is named by STORE."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from headgate import Limiter

__all__ = ["app"]

limiter = Limiter("100/hour", store=os.environ["STORE"])


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer 200 or 429, and say which worker did."""
    allowed = limiter.hit("everybody").allowed
    time.sleep(0.002)  # so that one worker cannot serve them all
    start_response("200 OK" if allowed else "429 Too Many Requests", [("Content-Length", "0")])
    environ["wsgi.errors"].write(f"served by {os.getpid()}\n")
    return [b""]
