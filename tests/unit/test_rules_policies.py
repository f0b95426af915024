"""Policies in a rules file: what they become, and what is said of what is wrong."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from test_rules_schema import both

from headgate import Facts
from headgate.gating.parts import settings_of
from headgate.resilience.breaker import presets
from headgate.rules import RulesError, read_rules
from headgate.rules.model import KeyPart, Otherwise
from headgate.rules.policies import Policies
from headgate.rules.policy_fields import POLICY, SYSTEM
from headgate.rules.policy_model import (
    AdaptiveRule,
    BreakerRule,
    BulkheadRule,
    CollapseRule,
    FleetRule,
    LastGoodRule,
    PartitionsRule,
    RetryRule,
)

FULL: dict[str, Any] = {
    "version": 1,
    "policies": [
        {
            "name": "pay",
            "match": {"resource": "pay", "origin": ["shop", "app"]},
            "key": ["host"],
            "breaker": {
                "failures": "50%", "errors": 20, "slow": {"ratio": "60%", "over": "2s"},
                "window": "100 calls", "minimum": 10, "open": "30s", "probes": 3, "ramp": "10s",
                "preset": "resilience4j", "probe_lease": "20s", "ramp_from": "5%",
                "probe_failures": 1, "half_open_for": "1min",
                "switch": "metrics_only",
            },
            "bulkhead": {"at_once": 20, "queue": 10, "wait": "1s"},
            "adaptive": {"estimator": "vegas", "initial": 5, "least": 1, "most": 50,
                         "shed": {"-1": "80%", "0": 1}, "queue": 5, "wait": "1s",
                         "partitions": {"by": "header:X-Kind", "lend": False,
                                        "shares": {"checkout": "50%", "search": 0.3}}},
            "timeout": "2s",
            "retry": {"attempts": 3, "pause": "50ms", "longest": 5, "budget": 0.1, "safe": True},
            "collapse": {"key": ["user", "arg:id"]},
            "last_good": {"age": "5min", "size": 100, "key": "arg:id"},
            "otherwise": {"page": "<p>"},
            "fallback": {"data": {"a": 1}},
            "status": 500,
            "log_level": "error",
            "shadow": False,
        },
        {"name": "short", "breaker": "25%", "bulkhead": "7", "adaptive": "aimd", "retry": 2,
         "fallback": {"function": "a:b"}, "collapse": True, "last_good": "2d"},
        {"name": "far", "bulkhead": {"pool": 8, "queue": 4, "wait": "1s"},
         "breaker": {"fleet": {"quorum": 3, "share": "60%", "every": "500ms", "ttl": "9s",
                               "keep_switch": True}}},
        {"name": "near", "breaker": {"fleet": 2}},
    ],
    "system": {
        "cpu": "80%", "load": 2.0, "memory": 0.9, "loop_lag": "100ms", "in_flight": 1000,
        "response_time": 0.5, "shed": {"-1": "90%", "1": "110%"}, "every": "2s", "status": 503,
        "otherwise": {"data": "busy"}, "log_level": "warning", "shadow": True,
    },
}  # fmt: skip


def test_every_field_is_tried_here() -> None:
    assert {name for policy in FULL["policies"] for name in policy} == set(POLICY.fields)
    assert set(FULL["system"]) == set(SYSTEM.fields)
    assert both(FULL) == (True, True)


def test_what_they_become() -> None:
    rules = read_rules(json.dumps(FULL), name="rules.json")
    pay, short, far, near = rules.policies
    assert pay.breaker == BreakerRule(
        "resilience4j", 0.5, 20, 0.6, 2.0, 100, None, 10, 30.0, 3, 10.0, 20.0, 1, 60.0, 0.05,
        "metrics_only",
    )  # fmt: skip
    assert pay.bulkhead == BulkheadRule(20, 10, 1.0)
    shares = (("checkout", 0.5), ("search", 0.3))
    parts = PartitionsRule(KeyPart("header", "x-kind"), shares, lend=False)
    shed = ((-1, 0.8), (0, 1.0))
    assert pay.adaptive == AdaptiveRule("vegas", 5, 1, 50, shed, parts, 5, 1.0)
    assert pay.collapse == CollapseRule((KeyPart("user"), KeyPart("arg", "id")))
    assert pay.last_good == LastGoodRule(300.0, 100, (KeyPart("arg", "id"),))
    assert (short.collapse, short.last_good) == (CollapseRule(), LastGoodRule(172800.0))
    assert far.bulkhead == BulkheadRule(8, 4, 1.0, pool=True)
    assert far.breaker == BreakerRule(fleet=FleetRule(3, 0.6, 0.5, 9.0, keep_switch=True))
    assert near.breaker == BreakerRule(fleet=FleetRule(2))
    assert pay.retry == RetryRule(3, 0.05, 5.0, 0.1, safe=True)
    assert (pay.timeout, pay.status, pay.log_level) == (2.0, 500, "error")
    assert pay.fallback == Otherwise("data", {"a": 1})
    assert short.breaker == BreakerRule(failure_ratio=0.25)
    assert short.bulkhead == BulkheadRule(7)
    assert (short.retry, short.status) == (RetryRule(2), 503)
    system = rules.system
    assert system is not None
    assert dict(system.bounds)["loop_lag"] == 0.1
    assert system.shed == ((-1, 0.9), (1, 1.1))


def test_toml_and_yaml_say_the_same() -> None:
    toml = """
version = 1
[[policies]]
name = "db"
bulkhead = 20
adaptive = {shed = {"-1" = "50%"}}
"""
    yaml = "version: 1\npolicies: [{name: db, bulkhead: 20, adaptive: {shed: {-1: 50%}}}]\n"
    first = read_rules(toml, name="a.toml").policies
    assert first == read_rules(yaml, name="a.yaml").policies


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{breaker: {failure: 50%}}", "'failure' is unknown in a breaker; did you mean 'failures'"),
        ("{breaker: {failures: 150%}}", "breaker.failures: expected a share up to 100%"),
        ("{breaker: {failures: 50}}", "expected a share up to 100%, such as 50%, not 50"),
        ("{breaker: {slow: {ratio: 50%}}}", "'over' is missing in 'slow'"),
        ("{breaker: {window: 100}}", "expected a window such as '100 calls' or 30s, not 100"),
        ("{breaker: {window: 0 calls}}", "expected a window"),
        ("{breaker: {window: 5 calls, minimum: 6}}", "minimum: 6 do not fit into a window of 5"),
        ("{breaker: {errors: 101}}", "errors: 101 do not fit into a window of 100 calls"),
        ("{breaker: {open: 0s}}", "breaker.open: a time is at least a microsecond"),
        ("{breaker: {preset: sentinel}}", "'sentinel' is not a word for this"),
        ("{breaker: {preset: sentinel-slow-ratio, open: 5s}}", "'slow' is missing"),
        ("{breaker: {preset: sentinel-error-count, errors: 5}}", "'open' is missing"),
        ("{breaker: {preset: consecutive, failures: 50%}}", "does not go by 'failures'"),
        (
            "{breaker: {preset: sentinel-error-count, errors: 5, open: 5s, window: 9 calls}}",
            "has a window of time",
        ),
        ("{bulkhead: 0}", "expected a whole number from 1 to"),
        ("{bulkhead: many}", "expected a whole number from 1 to"),
        ("{bulkhead: {at_once: 1, queue: 5}}", "say how long by 'wait'"),
        ("{bulkhead: {queue: 5, wait: 1s}}", "how many calls at once: 'at_once', or 'pool'"),
        ("{bulkhead: {at_once: 5, pool: 5}}", "how many calls at once: 'at_once', or 'pool'"),
        ("{bulkhead: {pool: 5}, key: [ip]}", "a pool is for all calls: with 'key', say 'at_once'"),
        ("{breaker: {fleet: 2}, key: [ip]}", "one breaker for all calls, and not one for each"),
        ("{breaker: {fleet: {every: 5s}}}", "'every' is less than the ttl, 5 s, not 5"),
        ("{breaker: {fleet: true}}", "expected a whole number from 1 to"),
        ("{breaker: {fleet: {nodes: 3}}}", "'nodes' is unknown in 'fleet'"),
        ("{breaker: {switch: open}}", "'open' is not a word for this"),
        ("{adaptive: {partitions: {shares: {a: 50%}}}}", "'by' is missing in 'partitions'"),
        ("{adaptive: {partitions: {by: usr, shares: {a: 50%}}}}", "partitions.by"),
        (
            "{adaptive: {partitions: {by: user, shares: {a: 60%, b: 50%}}}}",
            "the shares add up to 1.1, which is more than all",
        ),
        ("{adaptive: {queue: 5}}", "'queue' says how many calls wait, 'wait' for how long"),
        ("{collapse: false}", "nothing is said that protects: breaker, bulkhead"),
        ("{collapse: {}}", "'key' is missing in 'collapse'"),
        ("{collapse: 5}", "expected true or false, not 5"),
        ("{last_good: 8d}", "last_good: expected a time up to a week, such as 30s"),
        ("{last_good: {size: 5}}", "'age' is missing in 'last_good'"),
        ("{last_good: 1min, key: [ip]}", "'key' is for a breaker, a bulkhead or an adaptive"),
        ("{adaptive: gradient}", "did you mean 'gradient2'"),
        ("{adaptive: {least: 9, most: 3}}", "'initial' lies between 'least' and 'most'"),
        ("{adaptive: {shed: {low: 50%}}}", "a priority is a whole number, not 'low'"),
        ("{adaptive: {shed: {-1: 90%, 0: 50%}}}", "priority 0 may have no less than"),
        ("{timeout: 2h}", "timeout: expected a time up to an hour"),
        ("{retry: 0}", "expected a whole number from 1 to 100"),
        ("{fallback: {page: x}, bulkhead: 1}", "'page' is unknown in 'fallback'"),
        ("{match: {resource: db}}", "nothing is said that protects: breaker, bulkhead"),
        ("{timeout: 1s, key: [ip]}", "'key' is for a breaker, a bulkhead or an adaptive limit"),
        ("{limit: 5/minute}", "'limit' is unknown in a policy"),
        ("{match: {resuorce: db}, bulkhead: 1}", "'resuorce' is unknown in 'match'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(text: str, says: str) -> None:
    policy = "\n  - {name: ok, bulkhead: 1}\n  - " + text.replace("{", "{name: bad, ", 1)
    with pytest.raises(RulesError) as caught:
        read_rules(f"version: 1\npolicies:{policy}\n")
    assert says in str(caught.value)
    assert (caught.value.line, caught.value.rule) == (4, "bad")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "nothing is said to look at: cpu, load"),
        ("{cpu: 120%}", "system.cpu: expected a share up to 100%"),
        ("{load: 0}", "expected a number above 0"),
        ("{disk: 80%}", "'disk' is unknown in 'system'"),
        ("{cpu: 80%, shed: {}}", "expected a table such as {-1: 80%, 0: 100%}"),
    ],
)
def test_what_is_wrong_with_the_machine(text: str, says: str) -> None:
    with pytest.raises(RulesError) as caught:
        read_rules(f"version: 1\nsystem: {text}\n")
    assert says in str(caught.value)
    assert caught.value.line == 2


def test_one_name_is_one_thing() -> None:
    for text in (
        "rules: [{name: a, limit: 1/s}]\npolicies: [{name: a, bulkhead: 1}]",
        "policies: [{name: a, bulkhead: 1}, {name: a, bulkhead: 1}]",
        "policies: [{name: system, bulkhead: 1}]\nsystem: {cpu: 80%}",
    ):
        with pytest.raises(RulesError, match="there is a rule of this name already, on line"):
            read_rules(f"version: 1\n{text}\n")
    with pytest.raises(RulesError, match="expected a list of policies, not a table"):
        read_rules("version: 1\npolicies: {a: 1}\n")


def test_the_schema_is_as_strict() -> None:
    for path, value in (
        (("policies", 0, "breaker", "fails"), "50%"),
        (("policies", 0, "bulkhead", "at_once"), 0),
        (("policies", 0, "name"), 5),
        (("system", "disk"), "50%"),
        (("system", "shed"), {"low": "50%"}),
    ):
        data: Any = copy.deepcopy(FULL)
        inside = data
        for step in path[:-1]:
            inside = inside[step]
        inside[path[-1]] = value
        assert both(data) == (False, False), path


def settings(text: str) -> Any:
    rules = read_rules(f"version: 1\npolicies: [{{name: a, breaker: {text}}}]\n")
    breaker = rules.policies[0].breaker
    assert breaker is not None
    return settings_of(breaker)


def test_presets_are_those_of_the_breaker() -> None:
    assert settings("{preset: resilience4j}") == presets.resilience4j()
    assert settings("{preset: hystrix, open: 9s}") == presets.hystrix(wait=9.0)
    assert settings("{preset: consecutive}") == presets.consecutive()
    assert settings("{preset: consecutive, errors: 3}") == presets.consecutive(3)
    assert settings("{preset: hystrix, window: 50 calls}").window_seconds is None
    slow = "{preset: sentinel-slow-ratio, slow: {over: 200ms, ratio: 60%}, open: 10s, window: 2s}"
    assert settings(slow) == presets.sentinel_slow_ratio(0.2, ratio=0.6, wait=10.0, interval=2.0)
    ratio = "{preset: sentinel-error-ratio, failures: 40%, open: 10s, minimum: 8}"
    assert settings(ratio) == presets.sentinel_error_ratio(0.4, wait=10.0, minimum=8)
    count = "{preset: sentinel-error-count, errors: 4, open: 10s}"
    assert settings(count) == presets.sentinel_error_count(4, wait=10.0)


def test_matching_is_that_of_rules() -> None:
    rules = read_rules(
        """
version: 1
policies:
  - {name: all, bulkhead: 1}
  - {name: api, match: {path: /api/*, method: GET}, bulkhead: 1}
  - {name: users, match: {path: "/users/{id}"}, key: ["param:id"], bulkhead: 1}
  - {name: shop, match: {origin: shop}, key: [host], bulkhead: 1}
"""
    )
    policies = Policies(rules.policies)
    assert policies.match(Facts()) == [(0, "")]
    assert policies.match(Facts(path="/api/x", method="GET")) == [(0, ""), (1, "")]
    assert policies.match(Facts(path="/api/x", method="POST")) == [(0, "")]
    assert policies.match(Facts(path="/users/7")) == [(0, ""), (2, "7")]
    assert policies.match(Facts(origin="shop")) == [(0, "")]
    assert policies.match(Facts(origin="shop", host="H:80")) == [(0, ""), (3, "h")]
