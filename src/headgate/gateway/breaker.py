"""Breaker: a circuit breaker between the gateway and its upstream."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..calendar import duration
from ..resilience.breaker import FAILURE, FORCED_OPEN, IGNORED, OPEN, SUCCESS, Breaker, Settings
from ..resilience.errors import BreakerOpen
from ..service.settings import SettingsError
from .guard import Guard, Held

if TYPE_CHECKING:
    from ..resilience.notices import Notice
    from .plan import Plan

__all__ = ["BreakerGuard", "breaker_settings"]

logger = logging.getLogger("headgate")

OUTCOMES = {"success": SUCCESS, "failure": FAILURE, "ignored": IGNORED}
SOON, UNKNOWN = 1.0, 60.0
"""Seconds to come back after, where probes are under way, and where nobody can tell."""
LEASE = 60.0
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", re.ASCII)
_CALLS = re.compile(r"([0-9]{1,7}) ?calls?", re.ASCII)


class BreakerGuard(Guard):
    """A breaker as a guard: calls pass as it says, and its changes of state are logged."""

    def __init__(self, breaker: Breaker) -> None:
        self.breaker = breaker
        self._refused = 0
        breaker.listeners.append(self._heard)

    @classmethod
    def of(cls, text: str, plan: Plan) -> BreakerGuard | None:
        """What `--breaker` says, for the upstream of a plan; None if it is off."""
        settings = breaker_settings(text)
        if settings is None:
            return None
        # A call that hangs ends by its time-outs. The lease is for calls that have none.
        lease = max(LEASE, 10 + plan.connect + plan.between + plan.first_byte)
        return cls(Breaker(plan.upstream, settings, probe_lease=lease))

    def enter(self) -> Any:
        """A token of the breaker's."""
        try:
            return self.breaker.admit()
        except BreakerOpen as error:
            wait = error.wait
        # While others probe it may be over at any moment, though they have all of their lease.
        told = {OPEN: wait, FORCED_OPEN: UNKNOWN}.get(self.breaker.state)
        raise Held(told or SOON)

    def leave(self, token: Any, outcome: str, seconds: float) -> None:
        """Tell the breaker."""
        self.breaker.record(token, OUTCOMES[outcome], seconds)

    def _heard(self, notice: Notice) -> None:
        if notice.kind == "breaker.refused":
            self._refused += 1
        if notice.kind != "breaker.state":
            return
        before, state, why = (str(notice.values[word]) for word in ("before", "state", "why"))
        refused, self._refused = self._refused, 0
        level = logging.WARNING if state == OPEN else logging.INFO
        held = f"; {refused} calls were held back" if refused else ""
        extra = {"upstream": notice.name, "breaker": state, "before": before, "refused": refused}
        logger.log(
            level, "upstream %s: the breaker is %s: %s%s", notice.name, state.replace("_", " "),
            why, held, extra=extra,
        )  # fmt: skip


def _share(text: str) -> float:
    found = _SHARE.fullmatch(text)
    if found is None or not 0 < float(found[1]) <= 100:
        raise ValueError(f"a share such as 50%, not {text!r}")
    return float(found[1]) / 100


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,7}", text, re.ASCII) or not int(text):
        raise ValueError(f"a number above 0, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        micros = duration(text, "time")
    except (ValueError, TypeError):
        micros = 0
    if micros <= 0:
        raise ValueError(f"a time such as 10s, not {text!r}")
    return micros / 1_000_000


def _window(text: str) -> int | float:
    """A number of calls, or of seconds; the one is an int, the other a float."""
    calls = _CALLS.fullmatch(text)
    return _count(calls[1]) if calls is not None else _seconds(text)


WORDS: dict[str, tuple[str, Callable[[str], float]]] = {
    "failures": ("failure_ratio", _share),
    "errors": ("failure_count", _count),
    "slow": ("slow_after", _seconds),
    "slow-share": ("slow_ratio", _share),
    "window": ("window", _window),
    "minimum": ("minimum", _count),
    "open": ("wait", _seconds),
    "probes": ("probes", _count),
    "ramp": ("ramp", _seconds),
}
"""A word of the option, the setting it stands for, and how its value is read."""


def breaker_settings(text: str) -> Settings | None:
    """Settings as the option says them: `off`, `on`, or `failures=50%,slow=2s,open=10s`."""
    if text in ("", "off"):
        return None
    found: dict[str, Any] = {}
    for part in () if text == "on" else text.split(","):
        word, _, value = part.strip().partition("=")
        if word not in WORDS:
            known = ", ".join(f"{each}=" for each in WORDS)
            raise SettingsError(f"a breaker is off, on, or some of {known}; not {part.strip()!r}")
        name, read = WORDS[word]
        if name in found:
            raise SettingsError(f"breaker: {word} is said twice")
        try:
            found[name] = read(value.strip())
        except ValueError as error:
            raise SettingsError(f"breaker: {word} is {error}") from None
    window = found.pop("window", 10.0)
    found |= {"window": window} if isinstance(window, int) else {"window_seconds": window}
    if found.keys() & {"failure_ratio", "slow_after"} or "failure_count" not in found:
        found.setdefault("minimum", 10)  # a count alone needs none
    try:
        return Settings(**{"wait": 10.0, "probes": 3, **found})
    except ValueError as error:
        raise SettingsError(f"breaker: {error}") from None
