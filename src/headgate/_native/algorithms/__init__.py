"""The algorithms, compiled; what they share with their package is found there."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("headgate.algorithms"), name)
