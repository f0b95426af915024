"""Fleets: breakers of policies that listen to those of other processes, by the gate's own Redis."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..clock import ticks_of
from ..resilience.breaker import Fleet, Quorum

if TYPE_CHECKING:
    from ..resilience.breaker import Breaker
    from ..rules.policy_model import FleetRule
    from ..stores.redis.commands import Commands

__all__ = ["Joined", "commands_of", "space_of"]


def commands_of(store: Any) -> Commands | None:
    """What speaks to the Redis of a store; None if it has none."""
    from ..stores.redis.commands import Commands
    from ..stores.redis.store import RedisStore

    while store is not None and not isinstance(store, RedisStore):
        store = getattr(store, "store", None)  # below what stands in front of it
    return None if store is None else Commands(store)


def space_of(client: Commands, name: str) -> str:
    """What the names of a gate's fleets begin with: below the store's prefix, apart from others."""
    return f"{client.prefix}breaker:{quote(name, safe='')}:"  # no brace, or the slot were another


class Joined:
    """A breaker that has joined its fleet; once for as long as it is to be there."""

    def __init__(self, breaker: Breaker, rule: FleetRule, client: Commands, space: str) -> None:
        self.rule = rule
        self.fleet = Fleet(
            breaker, client, quorum=(rule.least, rule.share), interval=rule.every, ttl=rule.ttl,
            keep_switch=rule.keep_switch, space=space,
        )  # fmt: skip
        self.started = False

    def start(self) -> None:
        """Report from now on; in a child, in a thread of its own."""
        self.fleet.start()
        self.started = True

    def change(self, rule: FleetRule) -> None:
        """Go by other numbers from now on."""
        self.rule, fleet = rule, self.fleet
        fleet.quorum = Quorum(rule.least, rule.share)
        fleet._interval, fleet._keep_switch = rule.every, rule.keep_switch
        fleet._ttl = ticks_of(rule.ttl, "ttl")

    def leave(self) -> None:
        """Leave the fleet, without waiting for Redis."""
        threading.Thread(target=self.stop, name="headgate fleet", daemon=True).start()

    def stop(self) -> None:
        """Leave the fleet; what was forced upon all is no longer so here."""
        self.fleet.stop()
        self.fleet._follow("")
