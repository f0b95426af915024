"""Headers: what a response says about the limits that its request met.

The formats are the drafts of the IETF (structured fields, RFC 9651) and the older X-RateLimit
headers. A policy, the part of a header that does not change, is written once for each limit.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

from .decision import Decision, JointDecision
from .limit import Limit

__all__ = [
    "FORMATS", "STRUCTURED", "Part", "Policy", "alone", "each", "header_pairs", "policy_name",
    "policy_of", "retry_seconds", "state_of",
]  # fmt: skip

Pairs = list[tuple[str, str]]

INFINITY = float("inf")
LARGEST = 10**15 - 1
"""A structured field's whole number has at most 15 digits."""
MOST = 16
"""So many limits are told at most: proxies drop a response whose headers are too long."""
KEPT = 4096
STRUCTURED = ("draft-11", "draft-10")
BUCKETS = ("token-bucket", "gcra", "leaky-bucket")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FOREIGN = re.compile(r"[^\x20-\x7e]")


class Part(NamedTuple):
    """One rule's share of a verdict."""

    name: str
    decision: Decision


class Policy:
    """What is told of a limit under a name, and does not change from call to call."""

    __slots__ = ("item", "quota", "raw", "start", "timed", "window")

    def __init__(self, name: str, limit: Limit) -> None:
        quoted = '"' + policy_name(name).replace("\\", "\\\\").replace('"', '\\"') + '"'
        self.timed = limit.algorithm != "concurrency"
        self.quota = min(limit.raised(limit.capacity), LARGEST)
        self.window = _window(limit) if self.timed else 0
        """In whole seconds; 0 if there is none, or if it is shorter than one."""
        self.start = f"{quoted};r="
        self.item = f"{quoted};q={self.quota}"
        if not self.timed:
            self.item += ';qu="concurrent-requests"'
        elif limit.unit == "B":
            self.item += ';qu="content-bytes"'
        if self.window:
            self.item += f";w={self.window}"
        self.raw = b"ratelimit-policy", self.item.encode()
        """The header that tells of this policy alone, as bytes."""


def header_pairs(
    parts: Sequence[tuple[str, Decision]],
    *,
    allowed: bool,
    retry_after: float,
    format: str = "draft-11",  # noqa: A002 # the word everybody uses for it
    partition_key: str | bytes | None = None,
) -> Pairs:
    """The headers of a response, as pairs of name and value; all of it printable ASCII.

    `parts` are pairs of a rule's name and its decision, such as `Part`.
    """
    write = FORMATS.get(format)
    if write is None:
        known = ", ".join(FORMATS)
        raise ValueError(f"unknown format of headers {format!r}; known are {known}")
    pairs = write(parts, partition_key) if parts else []
    if not allowed and retry_after != INFINITY:
        pairs.append(("Retry-After", str(retry_seconds(retry_after))))
    return pairs


def alone(name: str, decision: Decision, form: str) -> list[tuple[bytes, bytes]] | None:
    """The headers of a call that passed one rule, as bytes; None if there is more to say.

    Nearly every response has these. So this is `_structured` once more for them alone: what
    there are several functions and properties for is done in one go.
    """
    if form not in STRUCTURED or isinstance(decision, JointDecision):
        return None
    source = decision._source
    left, _, reset = decision._look()
    return state_of(policy_of(name, source.limit), left, reset, source.per_second)


def state_of(policy: Policy, left: int, reset: int, per_second: int) -> list[tuple[bytes, bytes]]:
    """A policy and what is left of it, as bytes; `reset` is in the limit's own units of time."""
    state = f"{policy.start}{left if left < LARGEST else LARGEST}"
    if policy.timed and reset >= 0:
        wait = -(-reset // per_second)
        state = f"{state};t={policy.window if wait > policy.window > 0 else wait}"
    return [policy.raw, (b"ratelimit", state.encode())]


def retry_seconds(retry_after: float) -> int:
    """A finite wait as Retry-After has it: in whole seconds, rounded up, at least 1."""
    return max(1, ceil(retry_after))


def policy_name(name: str) -> str:
    """A name as headers can carry it; what is not ASCII is percent-encoded as in a URL.

    A name with control characters is an error: it would be the start of another header.
    """
    if name.isascii() and name.isprintable():
        return name
    found = _CONTROL.search(name)
    if found:
        raise ValueError(
            f"a name in headers has no control characters: {name!r}, position {found.start()}"
        )
    return _FOREIGN.sub(
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass")),
        name,
    )


def each(parts: Sequence[tuple[str, Decision]]) -> Iterator[tuple[str, Decision]]:
    """The parts with one limit each: `api` with two limits is `api#0` and `api#1`.

    A limit's own name stands in place of its number: `api#burst`.
    """
    for name, decision in parts:
        if isinstance(decision, JointDecision):
            for place, part in enumerate(decision.parts):
                yield f"{name}#{part.limit.name or place}", part
        else:
            yield name, decision


_policies: dict[tuple[str, str], Policy] = {}


def policy_of(name: str, limit: Limit) -> Policy:
    """What is told of a limit under a name."""
    try:
        return _policies[name, limit.text]
    except KeyError:
        policy = Policy(name, limit)
        if len(_policies) >= KEPT:  # limits made up for single keys are not kept for ever
            _policies.clear()
        _policies[name, limit.text] = policy
        return policy


def _window(limit: Limit) -> int:
    """A bucket has no window: it is said how long an empty one takes to fill."""
    window = limit.window
    if limit.algorithm in BUCKETS:
        window = -(-limit.capacity * window // limit.amount)
    return -(-window // 1_000_000) if window >= 1_000_000 else 0


def _wait(policy: Policy, decision: Decision) -> float:
    """Seconds for which no more than what remains can be had; -1 if nobody knows.

    Of a refusal that is the same as Retry-After. Else it is the time until the key is as if
    never used, but not longer than the window.
    """
    if not policy.timed:
        return -1
    if not decision.allowed:
        retry = decision.retry_after
        if retry != INFINITY:
            return retry
    reset = decision.reset_after
    if reset == INFINITY:
        return -1
    return policy.window if reset > policy.window > 0 else reset


def _structured(parts: Sequence[tuple[str, Decision]], partition_key: str | bytes | None) -> Pairs:
    """Draft 10 and 11: two lists, told apart by the names of the policies."""
    policies, states = [], []
    key = ""
    if partition_key is not None:
        raw = partition_key.encode() if isinstance(partition_key, str) else partition_key
        key = f";pk=:{b64encode(raw).decode()}:"
    for name, decision in _tightest(parts):
        policy = policy_of(name, decision.limit)
        remaining = decision.remaining
        state = policy.start + str(remaining if remaining < LARGEST else LARGEST)
        wait = _wait(policy, decision)
        if wait >= 0:
            state += f";t={ceil(wait)}"
        policies.append(policy.item + key if key else policy.item)
        states.append(state + key if key else state)
    return [("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(states))]


def _tightest(parts: Sequence[tuple[str, Decision]]) -> Sequence[tuple[str, Decision]]:
    """At most `MOST` of them: those that refuse, and then those with the least left."""
    if len(parts) > 1 or isinstance(parts[0][1], JointDecision):
        parts = list(each(parts))
        if len(parts) > MOST:
            order = sorted(range(len(parts)), key=lambda place: _order(parts[place][1]))
            parts = [parts[place] for place in sorted(order[:MOST])]
    return parts


def _order(decision: Decision) -> tuple[bool, float, int]:
    return decision.allowed, -decision.retry_after, decision.remaining


class Binding(NamedTuple):
    """The one limit that the older formats tell of."""

    policy: Policy
    remaining: int
    wait: float
    at: int
    """The instant of the decision, in microseconds since the epoch."""


def _binding(parts: Sequence[tuple[str, Decision]]) -> Binding | None:
    """What refuses longest, else what has the least left; they cannot say "at once"."""
    found = []
    for name, decision in each(parts):
        policy = policy_of(name, decision.limit)
        wait = _wait(policy, decision)
        if wait >= 0:
            found.append((_order(decision), policy, decision, wait))
    if not found:
        return None
    _, policy, decision, wait = min(found, key=lambda one: one[0])
    return Binding(policy, min(decision.remaining, LARGEST), wait, decision.at)


def _combined(parts: Sequence[tuple[str, Decision]], _: object) -> Pairs:
    """Draft 7: one dictionary, and the policies by their quotas."""
    binding = _binding(parts)
    if binding is None:
        return []
    windows: dict[int, int] = {}
    for name, decision in _tightest(parts):
        policy = policy_of(name, decision.limit)
        if policy.window:  # of two with the same quota the longer is the stricter, and tells all
            windows[policy.quota] = max(policy.window, windows.get(policy.quota, 0))
    policies = ", ".join(f"{quota};w={window}" for quota, window in windows.items())
    policy, remaining, wait, _at = binding
    state = f"limit={policy.quota}, remaining={remaining}, reset={ceil(wait)}"
    pairs = [("RateLimit-Policy", policies)] if policies else []
    return [*pairs, ("RateLimit", state)]


def _separate(parts: Sequence[tuple[str, Decision]], _: object) -> Pairs:
    """Draft 6: three headers; the reset is in seconds from now."""
    binding = _binding(parts)
    return [] if binding is None else _three("RateLimit", binding, ceil(binding.wait))


def _old(parts: Sequence[tuple[str, Decision]], _: object) -> Pairs:
    """The headers from before the drafts; the reset is an instant, in seconds since 1970."""
    binding = _binding(parts)
    if binding is None:
        return []
    instant = binding.at + round(binding.wait * 1_000_000)
    return _three("X-RateLimit", binding, -(-instant // 1_000_000))


def _three(prefix: str, binding: Binding, reset: int) -> Pairs:
    return [
        (f"{prefix}-Limit", str(binding.policy.quota)),
        (f"{prefix}-Remaining", str(binding.remaining)),
        (f"{prefix}-Reset", str(reset)),
    ]


def _nothing(_parts: object, _key: object) -> Pairs:
    return []


Writer = Callable[[Sequence[tuple[str, Decision]], str | bytes | None], Pairs]
FORMATS: dict[str, Writer] = {
    "draft-11": _structured,
    "draft-10": _structured,
    "draft-07": _combined,
    "draft-06": _separate,
    "x-ratelimit": _old,
    "off": _nothing,
}
"""By name; "off" leaves Retry-After alone."""
