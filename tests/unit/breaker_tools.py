"""What tests of breakers share: calls by letter, and a breaker that is open already."""

from __future__ import annotations

from typing import Any

from headgate import ManualClock
from headgate.resilience.breaker import Breaker, BreakerOpen

__all__ = ["Boom", "breaker", "opened", "play", "refused"]


class Boom(Exception):
    """What a sick service raises."""


def breaker(clock: ManualClock, **options: Any) -> Breaker:
    """Half of at least 5 calls opens it for 5 s; then 4 probes."""
    return Breaker("db", clock=clock, **{"minimum": 5, "wait": 5.0, "probes": 4, **options})


def play(breaker: Breaker, calls: str, seconds: float = 0.0) -> str:
    """Make calls: S goes well, F fails, I raises what is ignored; the answer tells of each."""
    told = ""

    def call(letter: str) -> str:
        if seconds:
            assert isinstance(breaker.clock, ManualClock)
            breaker.clock.advance(seconds)
        if letter == "F":
            raise Boom
        if letter == "I":
            raise KeyboardInterrupt
        return letter

    for letter in calls:
        try:
            told += breaker.call(call, letter)
        except Boom:
            told += "F"
        except KeyboardInterrupt:
            told += "I"
        except BreakerOpen:
            told += "-"
    return told


def refused(breaker: Breaker) -> bool:
    """Whether a call is refused now."""
    return play(breaker, "S") == "-"


def opened(clock: ManualClock, **options: Any) -> Breaker:
    """A breaker that has just tripped."""
    made = breaker(clock, **options)
    play(made, "F" * made.settings.least)
    assert made.state == "open"
    return made
