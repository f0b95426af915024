"""Policy fields: everything a rules file can say of breakers, bulkheads and the machine."""

from __future__ import annotations

from typing import Any

from . import checks
from .fields import LOG_LEVEL, MATCH, OTHERWISE, STATUS
from .kinds import Flag, Kind, Many, Place, Record, Table, Text, Whole, Word
from .lines import Node
from .model import PolicyRule, SystemRule
from .policy_kinds import AGE, CALLS, COUNT, LASTING, MANY, NUMBER, SHARE, Shed, Short, Window
from .policy_model import (
    AdaptiveRule,
    BreakerRule,
    BulkheadRule,
    CollapseRule,
    FleetRule,
    LastGoodRule,
    PartitionsRule,
    RetryRule,
)
from .texts import Data, Part

__all__ = ["POLICY", "SYSTEM"]

SENTINEL = ("sentinel-slow-ratio", "sentinel-error-ratio", "sentinel-error-count")
PRESETS = ("resilience4j", "hystrix", "consecutive", *SENTINEL)
SWITCHES = ("forced_open", "disabled", "metrics_only")
PARTS = ("breaker", "bulkhead", "adaptive", "timeout", "retry", "collapse", "last_good", "fallback")
THREADS = 1000
BOUNDS = ("cpu", "load", "memory", "loop_lag", "in_flight", "response_time")


def _slow(found: dict[str, Any], _: Node, __: Place) -> dict[str, Any]:
    return {"slow_after": found["over"], "slow_ratio": found.get("ratio")}


_NAMES = {"failures": "failure_ratio", "errors": "failure_count", "open": "wait"}


def _breaker(found: dict[str, Any], node: Node, place: Place) -> BreakerRule:
    said = set(found)
    for several in ("slow", "window"):
        found.update(found.pop(several, {}))
    rule = BreakerRule(**{_NAMES.get(name, name): value for name, value in found.items()})
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    if rule.preset in SENTINEL:
        own = {"sentinel-slow-ratio": "slow", "sentinel-error-ratio": "failures"}
        needs = (own.get(rule.preset, "errors"), "open")
        excludes = tuple({"slow", "failures", "errors"} - {needs[0]})
        if rule.window_calls is not None:
            raise place.error(node, f"{rule.preset} has a window of time, such as 1s")
    elif rule.preset == "consecutive":
        excludes = ("failures", "slow", "window", "minimum")
    for name in needs:
        if name not in said:
            raise place.error(node, f"{name!r} is missing: {rule.preset} goes by it")
    for name in sorted(excludes):
        if name in said:
            raise place.error(node, f"{rule.preset} does not go by {name!r}")
    window = rule.window_calls or (100 if rule.window_seconds is None and not rule.preset else MANY)
    for name, count in (("errors", rule.failure_count), ("minimum", rule.minimum)):
        if (count or 0) > window:
            raise place.error(node, f"{name}: {count} do not fit into a window of {window} calls")
    return rule


def _fleet(found: dict[str, Any], node: Node, place: Place) -> FleetRule:
    rule = FleetRule(**{_FLEET_NAMES.get(name, name): value for name, value in found.items()})
    if rule.every >= rule.ttl:
        raise place.error(node, f"'every' is less than the ttl, {rule.ttl:g} s, not {rule.every:g}")
    return rule


_FLEET_NAMES = {"quorum": "least"}
FLEET = Short(COUNT, "quorum", Record(
    {"quorum": COUNT, "share": SHARE, "every": LASTING, "ttl": LASTING, "keep_switch": Flag()},
    _fleet, what=" in 'fleet'",
))  # fmt: skip
_BREAKER: dict[str, Kind] = {
    "failures": SHARE,
    "errors": COUNT,
    "slow": Record({"over": LASTING, "ratio": SHARE}, _slow, needs=("over",), what=" in 'slow'"),
    "window": Window(),
    "minimum": COUNT,
    "open": LASTING,
    "probes": COUNT,
    "probe_lease": LASTING,
    "probe_failures": COUNT,
    "half_open_for": LASTING,
    "ramp": LASTING,
    "ramp_from": SHARE,
    "preset": Word(*PRESETS),
    "switch": Word(*SWITCHES),
    "fleet": FLEET,
}
BREAKER = Short(SHARE, "failures", Record(_BREAKER, _breaker, what=" in a breaker"))


def _bulkhead(found: dict[str, Any], node: Node, place: Place) -> BulkheadRule:
    if "queue" in found and "wait" not in found:
        raise place.error(node, "'queue' is for calls that wait: say how long by 'wait'")
    if ("at_once" in found) == ("pool" in found):
        raise place.error(node, "a bulkhead says how many calls at once: 'at_once', or 'pool'")
    pool = "pool" in found
    limit = found["pool" if pool else "at_once"]
    return BulkheadRule(limit, found.get("queue"), found.get("wait", 0.0), pool)


BULKHEAD = Short(CALLS, "at_once", Record(
    {"at_once": CALLS, "pool": Whole(1, THREADS), "queue": Whole(0, MANY), "wait": LASTING},
    _bulkhead, what=" in a bulkhead",
))  # fmt: skip


def _partitions(found: dict[str, Any], node: Node, place: Place) -> PartitionsRule:
    shares = tuple(found["shares"].items())
    whole = sum(share for _, share in shares)
    if whole > 1 + 1e-9:
        raise place.error(node, f"the shares add up to {whole:.4g}, which is more than all")
    return PartitionsRule(found["by"], shares, found.get("lend", True))


PARTITIONS = Record(
    {"by": Part(), "shares": Table(SHARE, checks.attribute_name, 100), "lend": Flag()},
    _partitions, needs=("by", "shares"), what=" in 'partitions'",
)  # fmt: skip


def _adaptive(found: dict[str, Any], node: Node, place: Place) -> AdaptiveRule:
    least, first, most = (found.get(name) for name in ("least", "initial", "most"))
    known = [number for number in (least, first, most) if number is not None]
    if known != sorted(known):
        raise place.error(node, "'initial' lies between 'least' and 'most'")
    if ("queue" in found) != ("wait" in found):
        raise place.error(node, "'queue' says how many calls wait, 'wait' for how long: say both")
    return AdaptiveRule(**found)


ESTIMATOR = Word("gradient2", "vegas", "aimd")
ADAPTIVE = Short(ESTIMATOR, "estimator", Record(
    {"estimator": ESTIMATOR, "initial": COUNT, "least": COUNT, "most": COUNT, "shed": Shed(100),
     "partitions": PARTITIONS, "queue": COUNT, "wait": LASTING},
    _adaptive, what=" in 'adaptive'",
))  # fmt: skip


def _retry(found: dict[str, Any], _: Node, __: Place) -> RetryRule:
    return RetryRule(**found)


ATTEMPTS = Whole(1, 100)
RETRY = Short(ATTEMPTS, "attempts", Record(
    {"attempts": ATTEMPTS, "pause": LASTING, "longest": LASTING, "budget": SHARE, "safe": Flag()},
    _retry, what=" in 'retry'",
))  # fmt: skip
LAST_GOOD = Short(AGE, "age", Record(
    {"age": AGE, "size": COUNT, "key": Many(Part(), 16)},
    lambda found, _, __: LastGoodRule(**found), needs=("age",), what=" in 'last_good'",
))  # fmt: skip


def _collapse(found: dict[str, Any], _: Node, __: Place) -> CollapseRule | None:
    return CollapseRule(found.get("key", ())) if found.get("on", True) else None


COLLAPSE = Short(Flag(), "on", Record(
    {"key": Many(Part(), 16)}, _collapse, needs=("key",), what=" in 'collapse'",
))  # fmt: skip
_FALLBACK: dict[str, Kind] = {"data": Data(), "function": OTHERWISE.fields["function"]}
FALLBACK = Record(_FALLBACK, OTHERWISE.make, what=" in 'fallback'", minProperties=1,
                  maxProperties=1)  # fmt: skip


def _policy(found: dict[str, Any], node: Node, place: Place) -> PolicyRule:
    if not any(found.get(name) for name in PARTS):
        raise place.error(node, f"nothing is said that protects: {', '.join(PARTS)}")
    if found.get("key") and not any(name in found for name in PARTS[:3]):
        raise place.error(node, "'key' is for a breaker, a bulkhead or an adaptive limit")
    breaker, bulkhead = found.get("breaker"), found.get("bulkhead")
    if found.get("key") and bulkhead is not None and bulkhead.pool:
        raise place.error(node, "a pool is for all calls: with 'key', say 'at_once' in its place")
    if found.get("key") and breaker is not None and breaker.fleet is not None:
        raise place.error(node, "a fleet has one breaker for all calls, and not one for each 'key'")
    level = place.defaults.get("log_level", "info")
    return PolicyRule(**{"log_level": level, **found}, line=node.line)


POLICY = Record(
    {
        "name": Text("a policy's name", checks.rule_name, pattern=f"^{checks.RULE}$"),
        "match": MATCH,
        "key": Many(Part(), 16, 0),
        "breaker": BREAKER,
        "bulkhead": BULKHEAD,
        "adaptive": ADAPTIVE,
        "timeout": LASTING,
        "retry": RETRY,
        "collapse": COLLAPSE,
        "last_good": LAST_GOOD,
        "otherwise": OTHERWISE,
        "fallback": FALLBACK,
        "status": STATUS,
        "log_level": LOG_LEVEL,
        "shadow": Flag(),
    },
    _policy,
    needs=("name",),
    what=" in a policy",
)


def _system(found: dict[str, Any], node: Node, place: Place) -> SystemRule:
    bounds = tuple((word, found.pop(word)) for word in BOUNDS if word in found)
    if not bounds:
        raise place.error(node, f"nothing is said to look at: {', '.join(BOUNDS)}")
    return SystemRule(bounds, **found, line=node.line)


SYSTEM = Record(
    {
        "cpu": SHARE,
        "load": NUMBER,
        "memory": SHARE,
        "loop_lag": LASTING,
        "in_flight": COUNT,
        "response_time": LASTING,
        "shed": Shed(1000),
        "every": LASTING,
        "otherwise": OTHERWISE,
        "status": STATUS,
        "log_level": LOG_LEVEL,
        "shadow": Flag(),
    },
    _system,
    what=" in 'system'",
)
