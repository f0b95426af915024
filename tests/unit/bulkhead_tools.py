"""What the tests of bulkheads and pools share."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["thread", "until"]


def until(true: Any, seconds: float = 60.0) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


@contextmanager
def thread(call: Any, *args: Any) -> Iterator[list[Any]]:
    """Run a call in a thread; its result or error is appended to what is yielded."""
    came: list[Any] = []

    def run() -> None:
        try:
            came.append(call(*args))
        except BaseException as error:
            came.append(error)

    started = threading.Thread(target=run, daemon=True)
    started.start()
    yield came
    started.join(60)
    assert not started.is_alive()
