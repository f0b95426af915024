"""What the tests of telemetry share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gate_tools import START, rule, rules

from headgate import Facts, Gate, ManualClock, MemoryStore
from headgate.rules.model import Lists, Rule
from headgate.telemetry import Telemetry

__all__ = ["ANNA", "BERT", "Hands", "Seen", "mixed", "seen", "watched"]

ANNA = Facts(user="anna", ip="192.0.2.1", method="GET", path="/api/7")
BERT = Facts(user="bert", ip="192.0.2.2", method="GET", path="/api/8")


class Hands:
    """A clock for telemetry, turned by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Seen(dict[str, int]):
    """Results that came up, by name; any other is 0."""

    def __missing__(self, key: str) -> int:
        return 0


def seen(telemetry: Telemetry, name: str = "") -> Seen:
    """What was counted of a rule, or of all calls."""
    found = telemetry.snapshot()
    numbers = found["rules"].get(name, {}) if name else found["calls"]
    return Seen({k: v for k, v in numbers.items() if isinstance(v, int) and v})


@contextmanager
def watched(
    *given: Rule, kind: Callable[..., Any] = Gate, store: Any = None, **more: Any
) -> Iterator[tuple[Any, Any]]:
    """A gate of these rules, and what is counted of it."""
    own = MemoryStore(clock=ManualClock(START)) if store is None else store
    gate = kind(rules(*given), own)
    telemetry = Telemetry(**{"clock": Hands(), **more}).watch(gate)
    yield gate, telemetry
    telemetry.close()


def mixed() -> list[Rule]:
    """One rule of each kind."""
    return [
        rule("api", "2/minute", key="user", path="/api/*"),
        rule("trial", "1/minute", key="ip", path="/api/*", shadow=True),
        rule("health", path="/health", exempt=True),
        rule("blocked", "9/minute", path="/secret", deny=Lists(users=("bert",))),
    ]
