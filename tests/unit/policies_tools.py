"""What the tests of policies at the gate share: a breaker that opens soon, and how to trip it."""

from __future__ import annotations

from typing import Any

from headgate import Facts, Gate, ManualClock

BREAKER = """
version: 1
rules:
  - {name: limit, match: {resource: pay}, limit: 100/hour}
policies:
  - name: pay
    match: {resource: pay}
    breaker: {failures: 50%, window: 4 calls, open: 30s, probes: 1}
"""


def gate_of(text: str, clock: ManualClock, **more: Any) -> Gate:
    """A gate with these rules and policies."""
    return Gate(text, clock=clock, **more)


def call(gate: Gate, outcome: str = "success", **known: Any) -> bool:
    """One call that ends so; whether it was let in."""
    verdict = gate.check(Facts(**{"resource": "pay", **known}))
    if verdict:
        verdict.permit.release(outcome)
    return bool(verdict)


def trip(gate: Gate, **known: Any) -> None:
    """Let calls fail until the breaker opens."""
    assert [call(gate, "failure", **known) for _ in range(4)] == [True] * 4
