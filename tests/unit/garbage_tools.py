"""Garbage: generators that only the collector ends, in the middle of something else."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["left_in_cycles"]


def left_in_cycles(
    generators: Callable[[], Iterator[Any]], then: Callable[[int], object], count: int, often: int
) -> None:
    """Leave so many begun generators in cycles and do something after each.

    The collector runs at every `often` new objects, so that it ends them wherever that falls.
    """
    threshold = gc.get_threshold()
    gc.set_threshold(often, 2, 2)
    try:
        for number in range(count):
            generator = generators()
            next(generator)
            cycle: list[Any] = [generator]
            cycle.append(cycle)
            del generator, cycle
            then(number)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
