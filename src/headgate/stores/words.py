"""Words: how the options of a store's address are read."""

from __future__ import annotations

import re

__all__ = ["seconds_of", "whole_of", "yes_of"]


def seconds_of(text: str) -> float:
    """A time: `20ms`, `1s` or `0.02`."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(us|ms|s|)", text, re.ASCII)
    if match is None:
        raise ValueError(f"is a time such as 20ms, 1s or 0.02, not {text!r}")
    return float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}[match[2]]


def whole_of(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"is a whole number, not {text!r}")
    return int(text)


def yes_of(text: str) -> bool:
    """Yes or no."""
    if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
        raise ValueError(f"is yes or no, not {text!r}")
    return text.lower() in ("yes", "true", "1")
