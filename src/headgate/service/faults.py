"""Faults: what is wrong with a request, told as problem details (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from .codec import dumps

__all__ = ["PROBLEM", "Fault", "missing", "wrong"]

PROBLEM = (b"content-type", b"application/problem+json")
Pairs = list[tuple[bytes, bytes]]


class Fault(Exception):
    """A request that gets no answer but this; `field` names the part that was wrong."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str = "",
        headers: Pairs | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = headers or []
        self.close = close
        """Whether the connection cannot be used any more: there is more of the request on it."""

    def response(self) -> tuple[int, Pairs, bytes]:
        """Status, headers and body."""
        told: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.field:
            told["field"] = self.field
        pairs = [PROBLEM, *self.headers]
        if self.close:
            pairs.append((b"connection", b"close"))
        return self.status, pairs, dumps(told)


def wrong(field: str, expected: str, value: Any = ...) -> Fault:
    """A field that holds what it cannot hold."""
    shown = "" if value is ... else f", not {_shown(value)}"
    return Fault(422, f"{field} is {expected}{shown}", field=field)


def missing(field: str, detail: str = "") -> Fault:
    """A field that is not there."""
    return Fault(422, detail or f"{field} is missing", field=field)


def _shown(value: Any) -> str:
    """A value in few words; it may be of any size."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        text = "so large a number"
    text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 60 else f"{text[:57]}..."
