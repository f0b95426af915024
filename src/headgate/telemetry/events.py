"""Event: what there is to tell about one refused call; and the last few of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict import SHED
from .naming import text_of

if TYPE_CHECKING:
    from ..facts import Facts
    from ..verdict import Verdict
    from .naming import Namer

__all__ = ["Event", "Recent", "event_of", "noted"]

LONGEST = 200


class Event(NamedTuple):
    """One call that was refused, or would have been; or a change in a policy."""

    at: float
    """When, in seconds since the epoch."""
    rule: str
    result: str
    """refused, denied or shadowed; of a change the new state"""
    key: str
    """Whom, as keys are shown."""
    why: str
    """The limit that was reached; "deny list" if it was none; a policy's reason."""
    retry_after: float | None
    """Seconds until the same call could pass; None if never."""
    degraded: bool = False
    """Whether a stand-in decided because the store could not."""
    method: str = ""
    path: str = ""
    """The path, the route's pattern or the resource; a path only where keys are shown plainly."""
    ip: str = ""
    """Only where keys are shown plainly."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: without what is empty."""
        return {name: value for name, value in self._asdict().items() if value not in ("", None)}


_Kept = tuple[float, str, str, Any, Any, str, str, str, str]


class Recent:
    """The last refusals, for whoever looks at three in the morning."""

    def __init__(self, most: int) -> None:
        # An append is one step, so threads need no lock.
        self._kept: deque[_Kept] = deque(maxlen=most)
        self.add = self._kept.append

    def events(self, name: Namer, plain: bool, most: int | None = None) -> list[Event]:
        """The last ones first."""
        kept = list(self._kept.copy())[::-1]
        return [_event(each, name, plain) for each in kept[:most]]


def noted(at: float, rule: str, result: str, key: Any, answer: Any, facts: Facts) -> _Kept:
    """As much of a refusal as is kept: texts that are short, and an answer not yet read."""
    if key.__class__ is not str or len(key) > LONGEST:
        key = _short(key)
    what = facts.route or facts.resource
    return (at, rule, result, key, answer, facts.method, what[:LONGEST], facts.path[:LONGEST],
            facts.ip)  # fmt: skip


def event_of(facts: Facts, verdict: Verdict, at: float, name: Namer, plain: bool) -> Event:
    """The event of a refused verdict."""
    place = verdict._place
    answer: Any = verdict._answers[place] if place >= 0 else None
    if place == SHED:
        answer = verdict._shed
    result = "denied" if answer is None else "refused"
    return _event(noted(at, verdict.rule, result, verdict._key, answer, facts), name, plain)


def _event(kept: _Kept, name: Namer, plain: bool) -> Event:
    at, rule, result, key, answer, method, what, path, ip = kept
    why, wait, degraded = "deny list", None, False
    if answer is not None:
        why, wait, degraded = str(answer.limit), answer.retry_after, answer.degraded
        wait = None if wait == float("inf") else round(wait, 3)
    if not plain:
        path = ip = ""
    return Event(
        at, rule, result, name(key) if key else "", why, wait, degraded, method,
        text_of(what or path), ip,
    )  # fmt: skip


def _short(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(part[:LONGEST] for part in key[:8])
    return key[:LONGEST]
