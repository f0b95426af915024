"""ZoneStore: one limit for all processes of a machine, in a file that they all map."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...clock import Clock
from ...decision import Ask, Decision
from ...errors import StoreError
from ...limit import Limit
from ..base import Prepared
from .address import read_address
from .answers import ZoneAnswers
from .layout import check_size, shape_of
from .places import DENIED, EVICTED, KEYS, RECOVERIES, TOKENS
from .report import busiest, figures
from .sizes import check_fits
from .zone import anonymous_zone, open_zone

__all__ = ["ZoneStore"]

TOGETHER = 64
"""How many groups of asks are answered before others are let in."""


class ZoneStore(ZoneAnswers):
    """A store that all processes of a machine share, with no server to run.

    The zone is a file of a fixed size, best on a file system in memory (/dev/shm, /run); it is
    made by whoever comes first, readable by its owner alone unless `mode` says otherwise. A zone
    that is there already keeps its size and its choice of `keys`. A process that is killed at any
    moment leaves no decision half done, and its permits come back; but where containers with
    process ids of their own share a zone, only those of the container that was first can tell.
    A file that somebody shortens while it is in use takes its users down, as any mapped file does.

    When the zone is full, keys that are as if never used go first; a few are looked for at each
    new key. If there are none, of the live keys that are met the one that resets soonest is
    forgotten and counted in `evicted`, or, with `on_full="deny"`, the new key is refused and
    counted in `denied`. Keys with a permit held or a reservation open are never forgotten.

    The state of one key may take up to a sixteenth of the zone's bytes divided by four, so that
    a decision can be undone: in 16 MiB a log of some 40,000 events. Limits that could need more
    are refused when a limiter is made. At most 32,768 different limits are known to a zone.

    Nobody waits for another process longer than `patience` seconds, and for one that is stopped
    about 10 ms; then it is a StoreError. With `keys=True` the zone keeps the texts of keys and
    counts their hits, for `top` and `headgate zone top`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        size: int = 16 << 20,
        clock: Clock | None = None,
        on_full: str = "evict",
        keys: bool = False,
        mode: int = 0o600,
        patience: float = 1.0,
    ) -> None:
        _check(size, on_full, clock)
        super().__init__(
            open_zone(os.fspath(path), size, mode, keys, patience), clock, on_full, patience
        )

    @classmethod
    def anonymous(
        cls,
        *,
        size: int = 16 << 20,
        clock: Clock | None = None,
        on_full: str = "evict",
        keys: bool = False,
        patience: float = 1.0,
    ) -> ZoneStore:
        """A zone without a file, for this process and those it forks from now on."""
        _check(size, on_full, clock)
        store = cls.__new__(cls)
        zone = anonymous_zone(size, keys, patience)
        ZoneAnswers.__init__(store, zone, clock, on_full, patience)
        return store

    @classmethod
    def from_url(cls, address: str, clock: Clock | None = None) -> ZoneStore:
        """The zone of an address such as `zone:///run/app.zone?size=16MiB`."""
        path, options = read_address(address)
        try:
            if path is None:
                return cls.anonymous(clock=clock, **options)
            return cls(path, clock=clock, **options)
        except (TypeError, ValueError) as error:
            raise StoreError(f"{address!r}: {error}") from None

    # -- what it is

    @property
    def path(self) -> str:
        """Where the zone is."""
        return self._zone.path

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self._zone.size

    @property
    def keys(self) -> int:
        """How many keys are kept."""
        return self._word(KEYS)

    @property
    def evicted(self) -> int:
        """How many live keys were forgotten because the zone was full."""
        return self._word(EVICTED)

    @property
    def denied(self) -> int:
        """How many new keys were refused because the zone was full."""
        return self._word(DENIED)

    @property
    def recoveries(self) -> int:
        """How many decisions were undone because their process died."""
        return self._word(RECOVERIES)

    def stat(self) -> dict[str, Any]:
        """The zone in figures."""
        self._open()
        return figures(self._zone.path, self._zone.header())

    def top(self, count: int = 20) -> list[dict[str, Any]]:
        """The busiest keys: limit, key, hits and refusals; only if the zone keeps keys."""
        self._open()
        return busiest(self._nodes, count, self._alone)

    # -- the contract

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself; others get in every so often."""
        for group in groups:
            self._check(group)
        if self.deciding():
            return [self._later(group) for group in groups]
        answers: list[list[Decision]] = []
        for first in range(0, len(groups), TOGETHER):
            answers += self._alone(self._decide_some, groups[first : first + TOGETHER])
        return answers

    def _decide_some(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        answers = []
        for group in groups:
            answers.append(self._decide(group))
            self._commit()
        return answers

    def quick(self, space: str, limits: Sequence[Limit]) -> Prepared | None:
        """A prepared take of these limits; an error if one could outgrow the zone."""
        self._open()
        for limit in limits:
            check_fits(limit, shape_of(self._zone.size), self._zone.path)
        tables = [self._table(space, limit) for limit in limits]
        if any(limit != table.rule.limit for limit, table in zip(limits, tables, strict=True)):
            return None
        return self._zone.quick(self, tables, space, limits)

    def token(self) -> int:
        """A new token, larger than every earlier one of this zone."""
        return self._alone(self._next_token)

    def _next_token(self) -> int:
        self._engine.add(TOKENS, 1)
        return self._engine.get(TOKENS)

    def close(self) -> None:
        """Let go of the zone, which lives on for others; later calls raise StoreError."""
        if not self.closed:
            self.closed = True
            self._zone.leave()


def _check(size: int, on_full: str, clock: Clock | None) -> None:
    check_size(size)
    if clock is not None and not isinstance(clock, Clock):
        raise TypeError(f"a clock has now() and micros(), which {clock!r} has not")
    if on_full not in ("evict", "deny"):
        raise ValueError(f"on_full is 'evict' or 'deny', not {on_full!r}")
