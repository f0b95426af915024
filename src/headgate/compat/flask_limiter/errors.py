"""The error of a call over its limit."""

from __future__ import annotations

from typing import Any

from flask.wrappers import Response
from werkzeug.exceptions import TooManyRequests

__all__ = ["RateLimitExceeded"]


class RateLimitExceeded(TooManyRequests):
    """A call was refused; `limit` says by which limit."""

    def __init__(self, limit: Any, response: Response | None = None) -> None:
        self.limit = limit
        message = limit.error_message
        said = message() if callable(message) else message
        super().__init__(description=said or str(limit.limit), response=response)
