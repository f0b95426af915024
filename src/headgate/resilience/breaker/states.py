"""States: the table of a breaker's states and edges, and the diagram that is drawn from it.

Two rules. A breaker changes its state along an edge of EDGES and in no other way. What a state
does with a call is said in STATES and nowhere else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = [
    "CLOSED",
    "DISABLED",
    "EDGES",
    "FORCED_OPEN",
    "HALF_OPEN",
    "METRICS_ONLY",
    "OPEN",
    "RECOVERING",
    "STATES",
    "SWITCHES",
    "State",
    "diagram",
    "target",
]

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half_open"
RECOVERING: Final = "recovering"
FORCED_OPEN: Final = "forced_open"
DISABLED: Final = "disabled"
METRICS_ONLY: Final = "metrics_only"

# What happens to a breaker.
TRIP: Final = "trip"
WAITED: Final = "waited"
WELL: Final = "well"
RAMP: Final = "ramp"
RAMPED: Final = "ramped"


class State(NamedTuple):
    """What a state does with calls."""

    passes: str
    """Which calls pass: "all", "none", "probes" or "a share"."""
    counts: bool
    """Whether outcomes go into the window."""
    trips: bool
    """Whether an outcome may open it."""
    says: str


STATES: Final = {
    CLOSED: State("all", counts=True, trips=True, says="every call passes and is counted"),
    OPEN: State("none", counts=False, trips=False, says="every call is refused at once"),
    HALF_OPEN: State("probes", counts=True, trips=True, says="a few probes pass, no more"),
    RECOVERING: State("a share", counts=True, trips=True, says="a growing share of calls passes"),
    FORCED_OPEN: State("none", counts=False, trips=False, says="refuses until switched back"),
    DISABLED: State("all", counts=False, trips=False, says="lets everything pass, uncounted"),
    METRICS_ONLY: State("all", counts=True, trips=False, says="counts, and never trips"),
}

SWITCHES: Final = {
    "open": OPEN,
    "close": CLOSED,
    "force_open": FORCED_OPEN,
    "disable": DISABLED,
    "metrics_only": METRICS_ONLY,
}
"""What somebody may do by hand, in every state."""

EDGES: Final = {
    (CLOSED, TRIP): OPEN,
    (OPEN, WAITED): HALF_OPEN,
    (HALF_OPEN, TRIP): OPEN,
    (HALF_OPEN, WELL): CLOSED,
    (HALF_OPEN, RAMP): RECOVERING,
    (RECOVERING, TRIP): OPEN,
    (RECOVERING, RAMPED): CLOSED,
    **{(state, switch): aim for state in STATES for switch, aim in SWITCHES.items()},
}

SAYS: Final = {
    (CLOSED, TRIP): "a threshold is reached",
    (OPEN, WAITED): "the wait is over",
    (HALF_OPEN, TRIP): "the probes failed",
    (HALF_OPEN, WELL): "the probes passed",
    (HALF_OPEN, RAMP): "the probes passed, and there is a ramp",
    (RECOVERING, TRIP): "a threshold is reached",
    (RECOVERING, RAMPED): "the ramp is over",
}


def target(state: str, happened: str) -> str:
    """Where an edge leads; an error if there is none."""
    found = EDGES.get((state, happened))
    if found is None:
        raise ValueError(f"a breaker that is {state} has no edge for {happened!r}")
    return found


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {CLOSED}"]
    lines += [f"    {state} : {state}<br/>{row.says}" for state, row in STATES.items()]
    lines += [f"    {edge[0]} --> {EDGES[edge]} : {says}" for edge, says in SAYS.items()]
    lines.append('    state "any state" as any')
    lines += [f"    any --> {aim} : {word}()" for word, aim in SWITCHES.items()]
    return "\n".join(lines) + "\n"
