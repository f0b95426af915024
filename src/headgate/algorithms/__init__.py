"""The algorithms: one file each, pure, whole numbers only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import NEVER, REFUSED, Algorithm, Rule, Spread
from .concurrency import Concurrency
from .even import Even
from .fixed_window import CalendarWindow, FirstHitWindow, FixedWindow
from .gcra import Gcra
from .leaky_bucket import LeakyMeter, LeakyQueue
from .sliding_cells import SlidingCells
from .sliding_log import SlidingLog
from .sliding_window import SlidingWindow
from .token_bucket import DebtBucket, TokenBucket
from .warm_up import WarmUp

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["NEVER", "REFUSED", "Algorithm", "Concurrency", "Rule", "Spread", "carried", "rule_of"]


def rule_of(limit: Limit, permille: int = 0) -> Any:
    """The algorithm of a limit, with `permille` thousandths of its elastic part open."""
    rule = limit.kernels.get(permille)
    if rule is None:
        rule = limit.kernels[permille] = _class_of(limit)(limit, permille)
    return rule


def _class_of(limit: Limit) -> type[Rule]:
    match limit.algorithm:
        case "fixed-window":
            if limit.calendar:
                return CalendarWindow
            return FirstHitWindow if limit.first_hit else FixedWindow
        case "sliding-window":
            return SlidingWindow if limit.cells is None else SlidingCells
        case "sliding-log":
            return SlidingLog
        case "leaky-bucket":
            return LeakyMeter if limit.queue is None or limit.nodelay else LeakyQueue
        case "token-bucket":
            return DebtBucket if limit.debt else TokenBucket
        case "gcra":
            return Gcra
        case "even":
            return Even
        case "warm-up":
            return WarmUp
        case _:
            return Concurrency


def carried(old: Any, state: Any, new: Any, micros: int) -> Any:
    """A key's state under a new rule: what was used stays used.

    Rules of one shape read each other's state. Otherwise what is in use at this moment is
    entered as just used, rounded up to what the new rule can count.
    """
    if old.shape == new.shape:
        return state
    now, then = micros // new.tick, micros // old.tick
    if new.words and old.words:
        kept = new.inherit(old, state, now)
        if kept is not None:
            return kept
    top, bottom = old.used(*state, then) if old.words else old.used(state, then)
    return new.spent(now, top, bottom)
