"""Ticking: a thread that enters every second as it passes, for programs without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .watching import Telemetry

__all__ = ["Ticker"]


class Ticker:
    """`with Ticker(telemetry):`; in a server that forks, start it in the worker."""

    def __init__(self, telemetry: Telemetry, *also: Callable[[], object]) -> None:
        self._telemetry = telemetry
        self._also = also
        """Called every second too, such as a RefusalLog's `flush`."""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Ticker:
        """Begin; once is enough."""
        if self._thread is None:
            self._end.clear()
            self._thread = threading.Thread(target=self._run, name="headgate-tick", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Come to an end."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        clock = self._telemetry.clock
        while not self._end.wait(1.0 - clock() % 1.0):
            for each in (self._telemetry.tick, *self._also):
                try:
                    each()
                except Exception:  # numbers of one second are not worth the others
                    continue

    def __enter__(self) -> Ticker:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()
