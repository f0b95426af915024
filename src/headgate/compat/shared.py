"""What the names of slowapi and Flask-Limiter have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.utils import formatdate
from typing import Any

from ..addresses import Trusted, client_address, ip_key
from ..decision import Decision
from ..headers import header_pairs
from . import NotOffered
from .limits.errors import ConfigurationError
from .limits.storage import storage_from_string
from .limits.strategies import STRATEGIES, RateLimiter

__all__ = ["HEADERS", "address_of", "check_retry_after", "counting_of", "on_error_of", "told"]

HEADERS = {
    "limit": "X-RateLimit-Limit",
    "remaining": "X-RateLimit-Remaining",
    "reset": "X-RateLimit-Reset",
    "retry_after": "Retry-After",
}
"""By what they tell; a program may name them otherwise."""
_WORDS = {name: word for word, name in HEADERS.items()}


def counting_of(
    strategy: str, uri: str, options: Mapping[str, Any], on_error: str | None
) -> RateLimiter:
    """A strategy by its name, on a storage by its address."""
    if strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise ConfigurationError(f"Invalid rate limiting strategy {strategy}; known are {known}")
    return STRATEGIES[strategy](storage_from_string(uri, **options), on_error=on_error)


def on_error_of(swallow: bool, fallback: bool, limits: Sequence[Any]) -> str | None:
    """Who decides when the store cannot; None leaves it to the store's address."""
    if limits:
        raise NotOffered(
            "in_memory_fallback with limits of its own: while the store is away headgate counts "
            "the same limits in this process; write in_memory_fallback_enabled=True"
        )
    if fallback:
        return "local"
    return "allow" if swallow else None


def check_retry_after(value: str | None) -> None:
    """A form of Retry-After that there is."""
    if value not in (None, "", "delta-seconds", "http-date"):
        raise ConfigurationError(f"retry_after is delta-seconds or http-date, not {value!r}")


def told(
    decision: Decision, names: Mapping[str, str], retry_after: str | None
) -> list[tuple[str, str]]:
    """The headers that tell of a decision, under a program's own names."""
    wait = decision.retry_after
    pairs = header_pairs(
        [("limit", decision)], allowed=decision.allowed, retry_after=wait, format="x-ratelimit"
    )
    if retry_after == "http-date" and pairs and pairs[-1][0] == "Retry-After":
        at = -(-decision.at // 1_000_000) + int(pairs[-1][1])
        pairs[-1] = ("Retry-After", formatdate(at, usegmt=True))
    return [(names[_WORDS[name]], value) for name, value in pairs]


def address_of(peer: str | None, headers: Any = (), trusted: Trusted | None = None) -> str:
    """Whom to count a call for: its address, of IPv6 the network /64."""
    return ip_key(client_address(peer or "127.0.0.1", headers, trusted))
