"""The error of a call over its limit."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from .wrappers import Limit

__all__ = ["RateLimitExceeded"]


class RateLimitExceeded(HTTPException):
    """A call was refused; `limit` says by which limit."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        message = limit.error_message
        said = message() if callable(message) else message
        super().__init__(status_code=429, detail=said or str(limit.limit))
