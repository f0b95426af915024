"""Member: many instances of one breaker that listen to each other, through Redis.

Each node reports what its own breaker has found out; a quorum of sick nodes opens everybody's,
once; from then on each comes back by its own probes. One switch forces all. Nothing of this is
on a call's way: if Redis is lost, each node has its own breaker, as if there were no fleet.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from ...clock import ticks_of
from ..forking import begin_anew
from .states import CLOSED, DISABLED, FORCED_OPEN, HALF_OPEN, METRICS_ONLY, OPEN, RECOVERING

if TYPE_CHECKING:
    from ..notices import Notice
    from .breaker import Breaker

__all__ = ["Member", "Quorum", "Standing", "switch_command"]

SPACE = "headgate:breaker:"
"""What the names of all keys in Redis begin with."""
BY_FLEET = "a quorum of the fleet has opened"
BY_SWITCH = "switched for the whole fleet"
UNWELL = (OPEN, HALF_OPEN, RECOVERING)
"""The states in which a node may be sick: it is so from the moment it trips until it closes."""
WELL = (CLOSED, RECOVERING)
"""The states in which it is news what others have found out."""
SWITCHED = {FORCED_OPEN: "force_open", DISABLED: "disable", METRICS_ONLY: "metrics_only"}


class Quorum(NamedTuple):
    """How many nodes must be sick: at least `least`, and at least this share of the living."""

    least: int = 2
    share: float = 0.5


class Standing(NamedTuple):
    """How the fleet was, when it was last asked."""

    alive: int
    sick: int
    open: bool
    """Whether a quorum is sick."""
    switch: str
    """The state that is forced upon all; empty if none is."""


def switch_command(name: str, state: str | None, space: str = SPACE) -> tuple[str, ...]:
    """The Redis command that forces a state upon every instance; None lets all go again."""
    if state is None:
        return "DEL", _key(name, "switch", space)
    if state not in SWITCHED:
        known = ", ".join(repr(word) for word in SWITCHED)
        raise ValueError(f"a fleet is switched to one of {known}, or None, not {state!r}")
    return "SET", _key(name, "switch", space), state


def _key(name: str, what: str, space: str) -> str:
    return f"{space}{{{name}}}:{what}"  # the braces keep them in one slot


class Member:
    """What a node says and what it does about the answer; both kinds of fleets drive it."""

    def __init__(
        self,
        breaker: Breaker,
        client: Any,
        *,
        node: str = "",
        quorum: Quorum | tuple[int, float] | int = Quorum(),  # noqa: B008 # a constant
        interval: float = 1.0,
        ttl: float = 5.0,
        keep_switch: bool = False,
        space: str = SPACE,
    ) -> None:
        if not breaker.name:
            raise ValueError("a breaker that is shared needs a name, the same on every node")
        self.quorum = Quorum(quorum) if isinstance(quorum, int) else Quorum(*quorum)
        if self.quorum.least < 1 or not 0 <= self.quorum.share <= 1:
            raise ValueError(f"a quorum is a number above 0 and a share up to 1, not {quorum!r}")
        self._ttl = ticks_of(ttl, "ttl")
        if not 0 < interval < ttl:
            raise ValueError(f"an interval lies between 0 and the ttl, {ttl!r}, not {interval!r}")
        self.breaker = breaker
        self._named = bool(node)
        self.node = node or _own_name()
        self.standing: Standing | None = None
        """How the fleet is; None before it was asked, and while Redis is lost."""
        self.error: Exception | None = None
        """Why the last report did not arrive."""
        self._client = client
        self._interval = interval
        self._keep_switch = keep_switch
        self._space = space
        self._script = files(__package__).joinpath("fleet.lua").read_text()
        self._since = ""
        self._switch = ""
        self._heard = breaker.clock.micros()
        self._told = False
        self._patient_until = 0
        self._listen()
        begin_anew(self)

    def _listen(self) -> None:
        if self._changed not in self.breaker.listeners:
            self._sick = self.breaker.state in UNWELL
            self.breaker.listeners.append(self._changed)

    def _changed(self, notice: Notice) -> None:
        if notice.kind != "breaker.state":
            return
        state = notice.values["state"]
        if state == OPEN:
            self._sick = notice.values["why"] != BY_FLEET
        elif state not in UNWELL:
            self._sick = False
        self._wake()

    def _wake(self) -> None:
        """Have the next report made at once."""

    def _question(self, leaving: bool = False) -> tuple[Any, ...]:
        words = ("alive", "sick", "since", "switch")
        keys = (_key(self.breaker.name, what, self._space) for what in words)
        ttl = 0 if leaving else max(1, self._ttl // 1000)
        share = math.floor(self.quorum.share * 1_000_000)  # two of three are two thirds
        # Notices of two threads may come in the wrong order, so the state has the last word.
        sick = self._sick and self.breaker.state in UNWELL
        return (
            "EVAL", self._script, 4, *keys, self.node, int(sick), ttl, self.quorum.least, share,
        )  # fmt: skip

    def _answered(self, reply: Any) -> None:
        alive, sick, since, switch, known = (_text(part) for part in reply)
        now = self.breaker.clock.micros()
        if self._told and known == "0":
            # Redis was emptied, or everybody away from it: others have to report again, too, or
            # the first to do so would be a quorum of the few that are known.
            self._patient_until = now + self._ttl
        self._told = True
        self.error = None
        self._heard = now
        self.standing = Standing(int(alive), int(sick), bool(since), switch)
        self._follow(switch)
        if now < self._patient_until:
            since = (since or self._since) if self._since else ""
        elif since and since != self._since and not switch and self.breaker.state in WELL:
            self.breaker.open(BY_FLEET)
        self._since = since  # once for each time the quorum is reached, or nobody came back

    def _follow(self, switch: str) -> None:
        before, self._switch = self._switch, switch if switch in SWITCHED else ""
        if self._switch == before:
            return
        if self._switch:
            getattr(self.breaker, SWITCHED[self._switch])(BY_SWITCH)
        elif self.breaker.state == before:  # else somebody here has switched it since
            self.breaker.close("no longer " + BY_SWITCH)

    def _lost(self, error: Exception) -> None:
        """Redis does not answer: for a while nothing changes, then the node is on its own."""
        self.error = error
        if self.breaker.clock.micros() - self._heard > self._ttl:
            self.standing = None
            if not self._keep_switch:
                self._follow("")

    def _leave(self) -> None:
        with contextlib.suppress(ValueError):
            self.breaker.listeners.remove(self._changed)
        self._told = False

    def after_fork(self) -> None:
        """In a child: another node, which has not reported yet."""
        if not self._named:
            self.node = _own_name()
        self._told = False


def _own_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


def _text(part: Any) -> str:
    return part.decode() if isinstance(part, bytes) else str(part)
