"""Looking: an existing zone read from outside, without taking part and without its lock.

Not for a process that uses the zone itself: closing the file would cost it its record lock.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

from ...errors import StoreError
from .engine import Engine
from .form import this_form
from .layout import check_header
from .opening import ANYONE, read_header
from .registry import Registry
from .report import busiest, figures
from .table import Nodes

__all__ = ["look_at", "look_at_keys"]


def look_at(path: str) -> dict[str, Any]:
    """A zone of either form in figures; StoreError if there is none."""
    file = _open(path)
    try:
        header, size = read_header(path, file)
        check_header(path, header, size, None)
        return figures(path, header)
    finally:
        os.close(file)


def look_at_keys(path: str, count: int) -> list[dict[str, Any]]:
    """The busiest keys of a zone of either form."""
    file = _open(path)
    try:
        header, size = read_header(path, file)
        shape = check_header(path, header, size, None)
        engine = Engine(path, shape.entries, shape.buckets, shape.chunks)
        with mmap.mmap(file, shape.size, access=mmap.ACCESS_READ) as memory:
            form = this_form()
            form.bind(engine, memory)
            try:
                return busiest(Nodes(engine, Registry(engine, hash)), count, None)
            finally:
                form.unbind(engine)
    finally:
        os.close(file)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | ANYONE)
    except OSError as error:
        raise StoreError(f"the zone {path} cannot be opened: {error.strerror}") from error
