"""Verdict: what the gate says to a call, and the error that carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .decision import Decision, Seen, decided
from .errors import LimitExceeded
from .headers import Part, alone, header_pairs
from .limit import Limit

if TYPE_CHECKING:
    from .gating.permit import AsyncPermit, Permit
    from .keys import Key
    from .rules.model import Otherwise

__all__ = ["SHED", "AsyncVerdict", "Refused", "Shed", "Verdict"]

INFINITY = float("inf")
SHED = -2
"""The place of what refused, if that was a policy."""


class Shed(NamedTuple):
    """Why a policy refused a call: which part of it, and when to try again."""

    part: str
    """breaker, bulkhead, adaptive or system"""
    why: str
    retry_after: float = INFINITY
    """Infinity if nobody can tell."""
    degraded: bool = False

    @property
    def limit(self) -> str:
        """What is told where a rule would tell its limit."""
        return self.why


class Verdict:
    """The answer to a call; true when it may go ahead.

    Whoever lets the call go ahead ends it by `verdict.permit.release(outcome)`.
    """

    # No __init__, and the rest is found out when it is read: every request makes one of these.
    __slots__ = (
        "_answers", "_bounds", "_format", "_key", "_place", "_rule", "_shadowed", "_shed",
        "allowed", "permit",
    )  # fmt: skip

    allowed: bool
    """Whether the call may go ahead."""
    permit: Permit
    """What the call holds, to be released when it ends."""
    _bounds: tuple[Any, ...]
    _answers: tuple[Decision, ...]
    """One decision for each bound."""
    _rule: Any
    """The rule that refused, or that let the call pass unasked."""
    _key: Key
    _place: int
    """Which of the answers refused; -1 if none was asked for, SHED if a policy did."""
    _shed: Shed
    """There only if a policy refused."""
    _shadowed: tuple[str, ...]
    _format: str

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def rule(self) -> str:
        """The name of the rule that refused, of several the one that does so for longest; or ""."""
        return "" if self.allowed else str(self._rule.name)

    @property
    def exempt(self) -> str:
        """The name of the rule that let the call pass without asking; or ""."""
        return str(self._rule.name) if self.allowed and self._rule is not None else ""

    @property
    def key(self) -> Key:
        """Whom that rule refused."""
        return self._key

    @property
    def decisions(self) -> tuple[Part, ...]:
        """The name and the decision of every rule that applied, those in shadow too."""
        pairs = zip(self._bounds, self._answers, strict=True)
        return tuple(Part(bound.rule.name, answer) for bound, answer in pairs)

    @property
    def decision(self) -> Decision | None:
        """The decision of the rule that refused; of a call that passed the tightest one."""
        if not self.allowed:
            if self._place >= 0:
                return self._answers[self._place]
            return _denial(self._rule, self.retry_after)
        told = self._told()
        return min((answer for _, answer in told), key=lambda d: d.remaining, default=None)

    @property
    def retry_after(self) -> float:
        """Seconds until the same call could pass: 0 if it passed, infinity if never.

        Where a policy refused, infinity is also what nobody can tell.
        """
        if self.allowed:
            return 0.0
        if self._place >= 0:
            return self._answers[self._place].retry_after
        return self._shed.retry_after if self._place == SHED else INFINITY

    @property
    def why(self) -> str:
        """What was wrong, as a sentence, where a policy refused; or ""."""
        return self._shed.why if not self.allowed and self._place == SHED else ""

    @property
    def delay(self) -> float:
        """Seconds the caller must let pass before acting."""
        return max((d.delay for d in self._answers), default=0.0) if self.allowed else 0.0

    @property
    def status(self) -> int:
        """The HTTP status of a refusal, as the rule has it; 200 if it passed.

        A call on a deny list is told 403 where its rule says no more than 429: trying again
        later will not help.
        """
        if self.allowed:
            return 200
        status: int = self._rule.status
        return 403 if status == 429 and self._place == -1 else status

    @property
    def otherwise(self) -> Otherwise | None:
        """What a refused call gets in place of an error, if its rule says so."""
        return None if self.allowed else self._rule.otherwise

    @property
    def shadowed(self) -> tuple[str, ...]:
        """The names of the rules in shadow that would have refused."""
        return self._shadowed

    @property
    def degraded(self) -> bool:
        """Whether a stand-in decided because the store could not."""
        return any(answer.degraded for answer in self._answers)

    def headers(self, format: str | None = None) -> list[tuple[str, str]]:  # noqa: A002 # its name
        """The headers of the response, in the format that the rules or the caller choose."""
        return header_pairs(
            self._told(),
            allowed=self.allowed,
            retry_after=self.retry_after,
            format=format or self._format,
        )

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """The same as bytes, the names in lower case: what ASGI calls headers."""
        if self.allowed and len(self._bounds) == 1:  # by far the most frequent
            rule, answer = self._bounds[0].rule, self._answers[0]
            if not rule.rule.shadow:
                pairs = alone(rule.name, answer, self._format)
                if pairs is not None:
                    return pairs
        return [(name.lower().encode(), value.encode()) for name, value in self.headers()]

    def _told(self) -> list[tuple[str, Decision]]:
        """What may be told: rules in shadow are not to be seen from outside."""
        pairs = zip(self._bounds, self._answers, strict=True)
        return [(b.rule.name, answer) for b, answer in pairs if not b.rule.rule.shadow]

    def __repr__(self) -> str:
        if self.allowed:
            return "<Verdict allowed>"
        wait = "" if self.retry_after == INFINITY else f", retry_after={self.retry_after:g}"
        return f"<Verdict refused by rule {self.rule!r}{wait}>"

    def __reduce__(self) -> tuple[Any, ...]:
        bounds = tuple(_Bound(_Named(b.rule.name, _plain(b.rule.rule)), b.key)
                       for b in self._bounds)  # fmt: skip
        rule = None if self._rule is None else _plain(self._rule)
        state = (self.allowed, bounds, self._answers, rule, self._key, self._place)
        shed = (self._shed,) if self._place == SHED else ()
        return _restored, (type(self), *state, self._shadowed, self._format, *shed)


class AsyncVerdict(Verdict):
    """The same for tasks: its permit is released by awaiting it."""

    __slots__ = ()

    if TYPE_CHECKING:
        permit: AsyncPermit  # type: ignore[assignment] # the same names, awaited


class Refused(LimitExceeded):
    """A call was refused at the gate; `verdict` says by which rule and for how long."""

    def __init__(self, verdict: Verdict) -> None:
        decision = verdict.decision
        assert decision is not None  # a refusal has one
        super().__init__(decision, verdict.key)
        self.verdict = verdict

    def __str__(self) -> str:
        verdict = self.verdict
        where = f" for key {verdict.key!r}" if verdict.key != "" else ""
        what = f"refused by rule {verdict.rule!r}{where}"
        if verdict.why:
            what = f"{what}: {verdict.why}"
        wait = verdict.retry_after
        return what if wait == INFINITY else f"{what}; retry after {wait:g} s"

    @property
    def retry_after(self) -> float:
        """Seconds until the same call could pass; infinity if never."""
        return self.verdict.retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return Refused, (self.verdict,)


# -- what travels between processes: values, without what a rule has prepared


class _Plain(NamedTuple):
    name: str
    status: int
    otherwise: Any
    shadow: bool


class _Named(NamedTuple):
    name: str
    rule: _Plain


class _Bound(NamedTuple):
    rule: _Named
    key: Any


def _plain(rule: Any) -> _Plain:
    return _Plain(rule.name, rule.status, rule.otherwise, rule.shadow)


def _restored(kind: type[Verdict], *state: Any) -> Verdict:
    from .gating.permit import ASYNC_NOTHING, NOTHING

    verdict = kind()
    (
        verdict.allowed, verdict._bounds, verdict._answers, verdict._rule, verdict._key,
        verdict._place, verdict._shadowed, verdict._format, *shed,
    ) = state  # fmt: skip
    for each in shed:
        verdict._shed = each
    nothing: Any = ASYNC_NOTHING if kind is AsyncVerdict else NOTHING
    verdict.permit = nothing
    return verdict


def _denial(rule: Any, wait: float) -> Decision:
    """The decision on a call that is refused whatever was used."""
    limits = getattr(rule, "limits", ())
    limit = limits[0] if limits else Limit(1, per=1).named(rule.name)
    micros = -1 if wait == INFINITY else round(wait * 1_000_000)
    return decided(Seen(limit, 1_000_000), (-1, 0, micros, micros), 0, 1)
