"""Policy words: the parts of a policy, said again as a rules file says them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .model import KeyPart, Otherwise, PolicyRule, SystemRule
from .policy_model import (
    AdaptiveRule,
    BreakerRule,
    BulkheadRule,
    CollapseRule,
    LastGoodRule,
    RetryRule,
)

__all__ = ["OUTER", "parts_of", "worded"]

OUTER = ("fallback", "last_good", "collapse", "retry")
"""What is around the calls that the gate makes itself."""
SHARES = ("cpu", "memory")
SPANS = ("loop_lag", "response_time")


def parts_of(rule: PolicyRule | SystemRule) -> list[tuple[str, dict[str, Any]]]:
    """The parts, the first that a call meets first, each with the words that were said of it."""
    if isinstance(rule, SystemRule):
        return [("system", _system(rule))]
    said = ((part, getattr(rule, part), words) for part, words in PARTS.items())
    return [(part, words(value)) for part, value, words in said if value]


def worded(words: dict[str, Any]) -> str:
    """Words in one line."""
    return ", ".join(f"{word} {_flat(value)}" for word, value in words.items())


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flat(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return " and ".join(map(str, value))
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def span(seconds: float | None) -> str | None:
    """A length of time as text."""
    return None if seconds is None else f"{seconds:g}s"


def share(part: float | None) -> str | None:
    """A share as text."""
    return None if part is None else f"{part * 100:g}%"


def _said(**words: Any) -> dict[str, Any]:
    return {word: value for word, value in words.items() if value not in (None, "", [])}


def _keys(parts: tuple[KeyPart, ...]) -> list[str]:
    return [f"{part.source}:{part.name}" if part.name else part.source for part in parts]


def _otherwise(said: Otherwise) -> dict[str, Any]:
    return {said.kind: _plain(said.value)}


def _plain(data: Any) -> Any:
    """Data as JSON can write it; what rules hold is read-only."""
    if isinstance(data, Mapping):
        return {str(name): _plain(value) for name, value in data.items()}
    return [_plain(value) for value in data] if isinstance(data, list | tuple) else data


def _last_good(rule: LastGoodRule) -> dict[str, Any]:
    return _said(age=span(rule.age), size=rule.size, key=_keys(rule.key))


def _collapse(rule: CollapseRule) -> dict[str, Any]:
    return _said(key=_keys(rule.key))


def _retry(rule: RetryRule) -> dict[str, Any]:
    return _said(
        attempts=rule.attempts, pause=span(rule.pause), longest=span(rule.longest),
        budget=share(rule.budget), safe=rule.safe,
    )  # fmt: skip


def _timeout(seconds: float) -> dict[str, Any]:
    return {"after": span(seconds)}


def _breaker(rule: BreakerRule) -> dict[str, Any]:
    calls, fleet = rule.window_calls, rule.fleet
    slow = _said(over=span(rule.slow_after), ratio=share(rule.slow_ratio))
    return _said(
        preset=rule.preset, failures=share(rule.failure_ratio), errors=rule.failure_count,
        slow=slow or None, window=f"{calls} calls" if calls else span(rule.window_seconds),
        minimum=rule.minimum, open=span(rule.wait), probes=rule.probes,
        probe_lease=span(rule.probe_lease), probe_failures=rule.probe_failures,
        half_open_for=span(rule.half_open_for), ramp=span(rule.ramp),
        ramp_from=share(rule.ramp_from), switch=rule.switch,
        fleet=fleet and _said(
            quorum=fleet.least, share=share(fleet.share), every=span(fleet.every),
            ttl=span(fleet.ttl), keep_switch=fleet.keep_switch,
        ),
    )  # fmt: skip


def _bulkhead(rule: BulkheadRule) -> dict[str, Any]:
    return {
        "pool" if rule.pool else "at_once": rule.limit,
        **_said(queue=rule.queue, wait=span(rule.wait) if rule.wait else None),
    }


def _adaptive(rule: AdaptiveRule) -> dict[str, Any]:
    parted = rule.partitions
    return _said(
        estimator=rule.estimator, initial=rule.initial, least=rule.least, most=rule.most,
        shed={str(priority): share(part) for priority, part in rule.shed} or None,
        partitions=parted and {
            "by": _keys((parted.by,))[0],
            "shares": {name: share(part) for name, part in parted.shares},
            "lend": parted.lend,
        },
        queue=rule.queue or None, wait=span(rule.wait) if rule.wait else None,
    )  # fmt: skip


def _system(rule: SystemRule) -> dict[str, Any]:
    bounds: dict[str, Any] = {
        word: share(bound) if word in SHARES else span(bound) if word in SPANS else bound
        for word, bound in rule.bounds
    }
    steps = {str(priority): share(part) for priority, part in rule.shed}
    return {**bounds, **_said(shed=steps or None, every=span(rule.every))}


PARTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "fallback": _otherwise, "last_good": _last_good, "collapse": _collapse, "retry": _retry,
    "breaker": _breaker, "adaptive": _adaptive, "bulkhead": _bulkhead, "timeout": _timeout,
    "otherwise": _otherwise,
}  # fmt: skip
"""In the order in which a call meets them."""
