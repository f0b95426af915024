"""Verdicts as a service tells them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..decision import Decision, Seen, decided
from ..keys import Key
from ..limit import Limit

__all__ = ["Held", "Part", "Verdict", "held_in", "read_verdict", "read_verdicts", "stood_in"]

INFINITY = float("inf")


class Part(NamedTuple):
    """What one limit of one rule says."""

    rule: str
    limit: str
    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float
    shadow: bool = False


class Held(NamedTuple):
    """What a call holds at the service: a permit or a reservation."""

    kind: str
    token: str
    lease: float | None
    """Seconds that it lives unless it is renewed; None if it need not be."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a call; true when it may go ahead. The names are those of a gate's verdict."""

    allowed: bool
    rule: str = ""
    """The rule that refused; or ""."""
    status: int = 200
    retry_after: float = 0.0
    """Seconds until the same call could pass: 0 if it passed, infinity if never."""
    remaining: int | None = None
    """How much is left of the tightest limit; None if no limit was asked."""
    decisions: tuple[Part, ...] = ()
    degraded: bool = False
    """Whether a stand-in decided: at the service, or here because it could not be reached."""
    shadowed: tuple[str, ...] = ()
    delay: float = 0.0
    exempt: str = ""
    why: str = ""
    """Why a policy refused, where one did."""
    key: Key = ""
    held: Held | None = field(default=None, compare=False)
    """What `client.release` or `client.settle` ends."""

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def decision(self) -> Decision | None:
        """The decision of the limit that refused, or of the tightest."""
        told = [part for part in self.decisions if not part.shadow]
        if not self.allowed:
            told = [part for part in told if not part.allowed]
            told.sort(key=lambda part: -part.retry_after)
            if not told:  # on a deny list, or refused without asking
                told = [Part(self.rule, "1/second", allowed=False, remaining=0,
                             retry_after=self.retry_after, reset_after=0.0)]  # fmt: skip
        if not told:
            return None
        tightest = min(told, key=lambda part: part.remaining) if self.allowed else told[0]
        limit = Limit.parse(tightest.limit)
        numbers = (tightest.remaining, _ticks(tightest.retry_after), _ticks(tightest.reset_after))
        source = Seen(limit.named(tightest.rule or limit.id), 1_000_000, self.degraded)
        return decided(source, (0 if self.allowed else -1, *numbers), 0, 1)


def stood_in(allowed: bool, key: Key) -> Verdict:
    """The verdict where the service could not be asked."""
    if allowed:
        return Verdict(allowed=True, degraded=True, key=key)
    return Verdict(allowed=False, status=503, retry_after=1.0, degraded=True, key=key)


def read_verdict(body: bytes, key: Key) -> Verdict:
    """The verdict that a body tells; ValueError if it tells none."""
    return _verdict(_read(body), key)


def read_verdicts(body: bytes, keys: list[Key]) -> list[Verdict]:
    """The verdicts of a batch."""
    try:
        found = _read(body)["verdicts"]
        return [_verdict(told, key) for told, key in zip(found, keys, strict=True)]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no verdicts: {error!r}") from None


def held_in(body: bytes) -> list[Held]:
    """Whatever an answer says that its caller holds now."""
    told = _read(body)
    verdicts = told.get("verdicts", [told]) if isinstance(told, dict) else []
    held = [_verdict(one, "").held for one in verdicts]
    return [one for one in held if one is not None]


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("too many brackets") from None


def _verdict(told: Any, key: Key) -> Verdict:
    try:
        if not isinstance(told["allowed"], bool):
            raise ValueError(f"allowed is true or false, not {told['allowed']!r}")
        return Verdict(
            allowed=told["allowed"],
            rule=str(told["rule"]),
            status=int(told["status"]),
            retry_after=_seconds(told["retry_after"]),
            remaining=told["remaining"],
            decisions=tuple(_part(part) for part in told["decisions"]),
            degraded=bool(told["degraded"]),
            shadowed=tuple(map(str, told["shadowed"])),
            delay=float(told.get("delay", 0.0)),
            exempt=str(told.get("exempt", "")),
            key=key,
            held=_held(told),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no verdict: {error!r}") from None


def _part(told: Any) -> Part:
    return Part(
        str(told["rule"]), str(told["limit"]), bool(told["allowed"]), int(told["remaining"]),
        _seconds(told["retry_after"]), _seconds(told["reset_after"]),
        bool(told.get("shadow", False)),
    )  # fmt: skip


def _held(told: Any) -> Held | None:
    for kind in ("permit", "reservation"):
        if told.get(kind) is not None:
            lease = told[kind].get("lease")
            return Held(kind, str(told[kind]["token"]), None if lease is None else float(lease))
    return None


def _seconds(told: Any) -> float:
    return INFINITY if told is None else float(told)


def _ticks(seconds: float) -> int:
    return -1 if seconds == INFINITY else round(seconds * 1_000_000)
