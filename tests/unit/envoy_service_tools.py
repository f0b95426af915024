"""What the tests of Envoy's services share: descriptors, and the service on a still clock."""

from __future__ import annotations

from typing import Any

from headgate import AsyncGate, ManualClock, MemoryStore
from headgate.rules.envoy import read_envoy
from headgate.rules.reading import read_rules
from headgate.service.envoy.rls import RateLimits

TREE = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: each
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: a
    descriptors:
      - key: b
        rate_limit: {unit: minute, requests_per_unit: 100}
"""


def service(text: str = TREE, **options: Any) -> tuple[RateLimits, ManualClock]:
    """The service with these rules, and its clock."""
    clock = ManualClock(1_000_020)
    rules: Any = read_envoy(text) if "descriptors:" in text else read_rules(text)
    return RateLimits(AsyncGate(rules, MemoryStore(clock=clock)), **options), clock
