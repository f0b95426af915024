"""RLS: Envoy's rate limit service, version 3; the bytes of a request in, those of a response out.

Every descriptor is counted by itself, whatever becomes of the others, and all of them are asked
for with one call to the store. The statuses match the descriptors in count and order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from ...decision import Decision
from ...errors import StoreError
from ...gate import Each
from ...headers import FORMATS, header_pairs
from ...limit import Limit
from . import metadata
from .matching import UNITS, Matcher, Ready
from .statistics import Statistics, near_of
from .status import Code, GrpcError
from .wire import LOW32, WireError, message, number, read_request, text, uint32, varint

if TYPE_CHECKING:
    from ...gate import AsyncGate
    from ...verdict import Verdict

__all__ = ["RateLimits"]

Question = tuple[list[Ready], list[Each], bytes]
"""The descriptors of a request, the calls that they are, and what metadata says of them."""
INFINITY = float("inf")
OK, OVER = b"\x08\x01", b"\x08\x02"
"""The field `code` of a status, and `overall_code` of a response."""
KEPT = 4096
"""So many requests are remembered as they were read: most of them come again and again."""
LONG = 1024
"""Longer ones are not."""
DESCRIPTORS = 1000
_WINDOWS = {1: 1, 60: 2, 3600: 3, 86400: 4, 604800: 7}
_RESETS = [b""] + [message(4, number(1, seconds)) for seconds in range(1, 3601)]


class Shown:
    """What a status tells of a limit, written once."""

    __slots__ = ("current", "limit", "near", "quota", "window")

    def __init__(self, limit: Limit, name: str) -> None:
        self.limit = limit
        self.quota = limit.raised(limit.capacity)
        self.near = near_of(self.quota)
        self.window = limit.window / 1_000_000
        unit = UNITS.get(limit.calendar or "") or _WINDOWS.get(self.window, 0)  # type: ignore[call-overload] # as a number
        self.current = message(2, uint32(1, self.quota) + number(2, unit) + text(3, name))


class RateLimits:
    """The service: rules, a store, and what is told of them."""

    def __init__(
        self,
        gate: AsyncGate,
        *,
        headers: str = "",
        shadow: bool = False,
        statistics: Statistics | None = None,
    ) -> None:
        if headers and headers not in FORMATS:
            known = ", ".join(FORMATS)
            raise ValueError(f"unknown format of headers {headers!r}; known are {known}")
        self.gate = gate
        self.shadow = shadow
        """Whether every request passes, whatever the rules say."""
        self.statistics = statistics or Statistics()
        self._headers = headers
        self._matcher = Matcher(None, self.statistics)
        self._known: dict[bytes, Question] = {}
        self._shown: dict[int, Shown] = {}
        self._format = ""

    async def answer(self, data: bytes) -> bytes:
        """ShouldRateLimit: a RateLimitResponse for a RateLimitRequest."""
        gate = self.gate
        if gate.snapshot is not self._matcher.snapshot:
            self.matcher()
        question = self._known.get(data)
        if question is None:
            question = self._read(data)
        ready, calls, known = question
        try:
            verdicts = await gate.check_many(calls)
        except StoreError as error:
            self.statistics.store_error += 1
            raise GrpcError(Code.UNAVAILABLE, f"the store cannot answer: {error}") from error
        return self._response(ready, verdicts, known)

    def matcher(self) -> Matcher:
        """What matches requests; when the rules have changed, a new one."""
        if self.gate.snapshot is not self._matcher.snapshot:
            self._renew()
        return self._matcher

    def _renew(self) -> None:
        """The rules have changed: what is known of requests is so no longer."""
        self._matcher = Matcher(self.gate.snapshot, self.statistics)
        self._known.clear()
        self._shown.clear()
        self._format = self._headers
        if not self._headers:  # whoever brings a configuration of Envoy's has headers there
            self._format = "off" if self._matcher.tree is not None else self.gate._book.format

    def _read(self, data: bytes) -> Question:
        try:
            request = read_request(data)
            if len(request.descriptors) > DESCRIPTORS:
                raise GrpcError(Code.INVALID_ARGUMENT, f"more than {DESCRIPTORS} descriptors")
            ready = self._matcher.ready(request)
        except WireError as error:
            self.statistics.service_error += 1
            raise GrpcError(Code.INVALID_ARGUMENT, str(error)) from None
        except GrpcError:
            self.statistics.service_error += 1
            raise
        known = metadata.about(request) if any(map(_is_soft, ready)) else b""
        question = ready, [each.call for each in ready], known
        if len(data) <= LONG:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[data] = question
        return question

    # -- what is told

    def _response(self, ready: Sequence[Ready], verdicts: Sequence[Verdict], known: bytes) -> bytes:
        allowed = True
        out = [b""]
        for each, verdict in zip(ready, verdicts, strict=True):
            status = self._status(each, verdict)
            out += (b"\x12", varint(len(status)), status)
            allowed = allowed and verdict.allowed
        if not allowed and self.shadow:
            self.statistics.global_shadow_mode += 1
            allowed = True
        out[0] = OK if allowed else OVER
        if not allowed or self._format != "off":
            out += self._told(verdicts, allowed)
        if known:
            pairs = enumerate(zip(ready, verdicts, strict=True))
            over = [place for place, (each, verdict) in pairs if _is_violated(each, verdict)]
            out.append(metadata.violations(known, over))
        return b"".join(out)

    def _told(self, verdicts: Sequence[Verdict], allowed: bool) -> list[bytes]:
        """The headers for the response to the client."""
        if self.shadow:  # nothing is to be seen of what does not hold
            return []
        pairs: Sequence[tuple[str | bytes, str | bytes]]
        if allowed and len(verdicts) == 1 and self._format == verdicts[0]._format:
            pairs = verdicts[0].raw_headers()
        else:
            parts = [part for verdict in verdicts for part in verdict._told()]
            wait = max(verdict.retry_after for verdict in verdicts)
            told = header_pairs(parts, allowed=allowed, retry_after=wait, format=self._format)
            pairs = [(name.lower(), value) for name, value in told]
        return [message(3, text(1, name) + text(2, value)) for name, value in pairs]

    def _status(self, each: Ready, verdict: Verdict) -> bytes:
        """What is told of one descriptor, and counted."""
        answers = verdict._answers
        if len(answers) == 1 and each.counters is not None:
            name = each.rule.name if each.rule is not None else ""
            return self._counted(each, verdict, answers[0], name)
        rule = each.rule
        if rule is not None:
            return self._unasked(each, rule, verdict.allowed)
        if each.counters is not None:  # an override that lets nothing pass
            each.counters.refused(each.hits, 0, 0, 0, shadow=False)
        bounds: Any = verdict._bounds
        for bound, answer in zip(bounds, answers, strict=True):
            self._count(bound.rule.rule, each, answer)
        decision = verdict.decision if answers else None
        code = OK if verdict.allowed else OVER
        if decision is None:
            return code
        place = verdict._place
        if place < 0:
            told = (b for b, a in zip(bounds, answers, strict=True) if a is decision)
            return code + self._numbers(decision, next(told).rule.name, verdict.allowed)
        return code + self._numbers(decision, bounds[place].rule.name, verdict.allowed)

    def _counted(self, each: Ready, verdict: Verdict, answer: Decision, name: str) -> bytes:
        """One rule of Envoy's: its numbers are told even in shadow."""
        shown = self._show(answer.limit, name)
        counters, hits, left = each.counters, each.hits, answer.remaining
        assert counters is not None
        if answer.allowed:
            counters.passed(hits, shown.quota, shown.near, left)
            return b"".join((OK, shown.current, uint32(3, left), _reset(shown, answer)))
        passes = verdict.allowed and not _is_soft(each)
        counters.refused(hits, shown.quota, shown.near, left, shadow=passes)
        code = OK if passes else OVER
        return b"".join((code, shown.current, _reset(shown, answer)))

    def _unasked(self, each: Ready, rule: Any, allowed: bool) -> bytes:
        """A rule of Envoy's that has nothing to count: unlimited, or 0 requests per unit."""
        if rule.unlimited:
            return OK + uint32(3, LOW32)
        assert each.counters is not None
        passes = allowed and not _is_soft(each)
        each.counters.refused(each.hits, 0, 0, 0, shadow=passes)
        current = message(2, number(2, UNITS[rule.unit]) + text(3, rule.name))
        return (OK if passes else OVER) + current

    def _count(self, rule: Any, each: Ready, answer: Decision) -> None:
        """Count under one of headgate's own rules."""
        shown = self._show(answer.limit, rule.name)
        counters = self.statistics.of(rule.name)
        if answer.allowed:
            counters.passed(each.hits, shown.quota, shown.near, answer.remaining)
        else:
            left = answer.remaining
            counters.refused(each.hits, shown.quota, shown.near, left, shadow=rule.shadow)

    def _numbers(self, decision: Decision, name: str, allowed: bool) -> bytes:
        shown = self._show(decision.limit, name)
        left = decision.remaining if allowed else 0
        return shown.current + uint32(3, left) + _reset(shown, decision)

    def _show(self, limit: Limit, name: str) -> Shown:
        shown = self._shown.get(id(limit))
        if shown is None or shown.limit is not limit:
            if len(self._shown) >= KEPT:
                self._shown.clear()
            shown = self._shown[id(limit)] = Shown(limit, name)
        return shown


def _is_soft(each: Ready) -> bool:
    """Whether what is over the limit is told, in its status and by metadata, and passes."""
    rule = each.rule
    return rule is not None and rule.quota_mode and not rule.shadow_mode


def _is_violated(each: Ready, verdict: Verdict) -> bool:
    if not _is_soft(each) or each.rule.unlimited:
        return False
    answers = verdict._answers
    return not answers[0].allowed if answers else True  # 0 requests per unit


def _reset(shown: Shown, decision: Decision) -> bytes:
    """`duration_until_reset`, in whole seconds and rounded up: Envoy drops what is less."""
    wait = INFINITY if decision.allowed else decision.retry_after
    if wait == INFINITY:
        wait = min(decision.reset_after, shown.window)
        if wait == INFINITY:
            return b""
    seconds = ceil(wait)
    return _RESETS[seconds] if seconds <= 3600 else message(4, number(1, seconds))
