"""Limit: how much is allowed, over what time, counted by which algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from . import calendar, language, options
from .errors import BadOption, LimitSyntaxError

__all__ = ["Limit"]


class Limit:
    """An immutable limit; made from values, or from text by `Limit.parse`.

    >>> Limit(100, per=60, algorithm="token-bucket", burst=20)
    Limit('100/minute token-bucket burst 20')
    """

    __slots__ = (
        "algorithm", "amount", "anchor", "burst", "calendar", "cells", "cold", "debt", "delay",
        "elastic", "first_hit", "id", "initial", "kernels", "lease", "name", "nodelay", "queue",
        "refill", "soft", "text", "tick", "tz", "unit", "warm_up", "window",
    )  # fmt: skip

    amount: int
    """How much is admitted per window; for concurrency, how many at once."""
    window: int
    """The window in microseconds; of a calendar window its longest form; 0 for concurrency."""
    algorithm: str
    tick: int
    """The resolution of this limit's time: 1, 1,000 or 1,000,000 microseconds."""
    text: str
    """The canonical text; `Limit.parse` reads it back."""
    burst: int | None
    initial: int | None
    refill: int
    debt: bool
    cells: int | None
    queue: int | None
    delay: int
    nodelay: bool
    tz: str | None
    anchor: int | None
    first_hit: bool
    calendar: str | None
    warm_up: int
    cold: int
    soft: int
    elastic: int
    lease: bool
    unit: str
    name: str | None
    id: str
    """What the limit's state is filed under: its name, else its text."""
    kernels: dict[int, Any]
    """Where algorithms keep what they derived from this limit."""

    def __init__(
        self,
        amount: int | str,
        per: float | str | timedelta | None = None,
        algorithm: str | None = None,
        *,
        burst: int | None = None,
        initial: int | None = None,
        refill: float | str | timedelta | None = None,
        debt: bool = False,
        cells: int | None = None,
        queue: int | None = None,
        delay: int | None = None,
        nodelay: bool = False,
        tz: str | None = None,
        anchor: datetime | str | None = None,
        first_hit: bool = False,
        warm_up: float | str | timedelta | None = None,
        cold: int | None = None,
        soft: int = 0,
        elastic: int = 0,
        lease: bool = False,
        unit: str = "",
        name: str | None = None,
    ) -> None:
        given = {
            "burst": burst, "initial": initial, "refill": refill, "debt": debt or None,
            "cells": cells, "queue": queue, "delay": delay, "nodelay": nodelay or None, "tz": tz,
            "anchor": anchor, "first_hit": first_hit or None, "warm_up": warm_up, "cold": cold,
        }  # fmt: skip
        if isinstance(amount, str):
            others = (per, algorithm, *given.values(), soft or None, elastic or None, lease or None)
            if any(other is not None for other in others) or unit:
                raise TypeError("a limit given as text holds its options already; write them there")
            values = _values(Limit.parse(amount))
            self._fill(values if name is None else {**values, "name": options.label(name)})
            return
        window, span = calendar.window(per)
        if span in ("month", "year"):
            given["calendar"] = span
        if algorithm is None and per is None:
            algorithm = "concurrency"
        present = [option for option, value in given.items() if value is not None]
        algorithm = options.chosen(algorithm, present)
        concurrent = algorithm == "concurrency"
        if concurrent != (per is None):
            raise BadOption(
                "per",
                "a concurrent limit has no window"
                if concurrent
                else f"{algorithm} needs a window: per=60 or per='minute'",
            )
        natural = span if given.get("calendar") or tz is not None else None
        if natural is None and tz is not None:
            raise BadOption(
                "per", "a calendar window is one second, minute, hour, day, week, month or year"
            )
        if (natural is not None) + (anchor is not None) + bool(first_hit) > 1:
            option = "anchor" if anchor is not None else "first_hit"
            raise BadOption(option, "a window has one start: choose tz, anchor or first-hit")
        if nodelay and delay is not None:
            raise BadOption("delay", "nodelay and delay exclude each other")
        if (nodelay or delay is not None) and queue is None and algorithm == "leaky-bucket":
            queue, burst = burst, None  # nginx writes `burst=5 delay=2` for our `queue 5 delay 2`
        self._fill(
            {
                "amount": options.whole(amount, "amount", 1),
                "window": window,
                "algorithm": algorithm,
                "burst": _whole(burst, "burst", algorithm != "leaky-bucket"),
                "initial": _whole(initial, "initial", 0),
                "refill": calendar.duration(refill, "refill") if refill is not None else 0,
                "debt": bool(debt),
                "cells": _whole(cells, "cells", 1),
                "queue": _whole(queue, "queue", 0),
                "delay": _whole(delay, "delay", 0) or 0,
                "nodelay": bool(nodelay),
                "tz": calendar.zone_name(tz) if tz is not None else ("UTC" if natural else None),
                "anchor": calendar.instant(anchor) if anchor is not None else None,
                "first_hit": bool(first_hit),
                "calendar": natural,
                "warm_up": calendar.duration(warm_up, "warm_up") if warm_up is not None else 0,
                "cold": _whole(cold, "cold", 1) or 3,
                "soft": options.whole(soft, "soft", 0),
                "elastic": options.whole(elastic, "elastic", 0),
                "lease": bool(lease),
                "unit": unit,
                "name": None if name is None else options.label(name),
            }
        )

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read a limit's text, such as `100/minute` or `10/second gcra burst 5`."""
        words = language.read(text)
        try:
            return cls(**words.arguments)
        except BadOption as bad:
            raise LimitSyntaxError(text, words.place(bad.option), str(bad)) from None

    @classmethod
    def of(cls, limit: Limit | str) -> Limit:
        """A limit as it is, or its text read."""
        if isinstance(limit, Limit):
            return limit
        if isinstance(limit, str):
            return cls.parse(limit)
        raise TypeError(f"a limit is a Limit or its text, not {type(limit).__name__}")

    @property
    def per(self) -> float:
        """The window in seconds."""
        return self.window / 1_000_000

    @property
    def queues(self) -> bool:
        """Whether calls above the rate are delayed in a queue of their own."""
        return self.queue is not None and not self.nodelay

    @property
    def capacity(self) -> int:
        """The most that can pass at one instant, before soft and elastic add to it."""
        if self.algorithm in ("token-bucket", "gcra"):
            return self.amount if self.burst is None else self.burst
        if self.algorithm == "leaky-bucket":
            return 1 + (self.burst or self.queue or 0)
        return self.amount

    def named(self, name: str) -> Limit:
        """The same limit filed under another id: how an override keeps a key's state."""
        if self.id == name:
            return self
        limit = object.__new__(Limit)
        limit._fill(_values(self), name)
        return limit

    def share(self, nodes: int) -> Limit:
        """What each of so many nodes may admit of this limit, rounded up, under the same id."""
        if nodes == 1:
            return self
        values = _values(self)
        for name in ("amount", "burst", "initial", "queue", "delay"):
            if values[name]:
                values[name] = -(-values[name] // nodes)
        limit = object.__new__(Limit)
        limit._fill(values, self.id)
        return limit

    def raised(self, value: int, permille: int = 0) -> int:
        """A number of this limit with soft added, and elastic by a share of its room."""
        return value + value * self.soft // 100 + value * self.elastic * permille // 100_000

    def _fill(self, values: dict[str, Any], filed: str | None = None) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)
        options.check(self)
        text = language.write(self)
        derived = {
            "id": filed or self.name or text,
            "kernels": {},
            "text": text,
            "tick": options.tick_of(self),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Limit does not change; make another one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Limit does not change; make another one")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and (self.text, self.id) == (other.text, other.id)

    def __hash__(self) -> int:
        return hash((self.text, self.id))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Limit({self.text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.text, self.id)


def _whole(value: int | None, option: str, least: int) -> int | None:
    """A whole number, if it was said."""
    return None if value is None else options.whole(value, option, least)


_DERIVED = ("id", "kernels", "text", "tick")


def _restored(text: str, filed: str) -> Limit:
    return Limit.parse(text).named(filed)


def _values(limit: Limit) -> dict[str, Any]:
    names: Iterator[str] = (name for name in Limit.__slots__ if name not in _DERIVED)
    return {name: getattr(limit, name) for name in names}
