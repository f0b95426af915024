"""Admission: whether whoever asks has the token of the API, where a bearer's header is not meant.

A gateway that asks without it lets its requests pass or refuses them all, and tells nobody why;
so the log does, once a minute at most.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Iterable

__all__ = ["Admission", "bearer"]

PAUSE = 60.0
"""Seconds between two lines of the log."""
logger = logging.getLogger("headgate.service")


class Admission:
    """The token that is wanted, if any; false if there is none.

    `where` says to whom it is shown, `line` how a gateway is told to send it.
    """

    def __init__(self, token: bytes, where: str, line: str) -> None:
        self._token = token
        self._where = where
        self._line = line
        self._said = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._token)

    def refuses(self, given: Iterable[bytes]) -> bool:
        """Whether none of what was given is the token; then the log says so."""
        if not self._token:
            return False
        if any(hmac.compare_digest(each, self._token) for each in given):
            return False
        now = time.monotonic()
        if now - self._said >= PAUSE:
            self._said = now
            logger.warning("%s asked without the API's token: %s", self._where, self._line)
        return True


def bearer(authorization: bytes) -> bytes:
    """The token of a header `Bearer TOKEN`; empty if it is of another kind."""
    scheme, _, given = authorization.partition(b" ")
    return given.strip() if scheme.lower() == b"bearer" else b""
