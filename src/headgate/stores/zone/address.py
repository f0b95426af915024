"""Addresses: `zone:///run/app.zone?size=16MiB&keys=yes`, read into a store's arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ...errors import StoreError

__all__ = ["read_address", "size_of"]

UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def size_of(text: str) -> int:
    """A size such as 512KiB, 16MiB or 65536 in bytes."""
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in UNITS:
        raise ValueError(f"a size is written as 512KiB, 16MiB, 1GiB or in bytes, not {text!r}")
    return int(match[1]) * UNITS[match[2].upper()]


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
        raise ValueError(f"keys is yes or no, not {text!r}")
    return text.lower() in ("yes", "true", "1")


def _mode(text: str) -> int:
    try:
        return int(text, 8)
    except ValueError:
        raise ValueError(f"mode is written as 0600, not {text!r}") from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"patience is a number of seconds, not {text!r}") from None


OPTIONS: dict[str, Callable[[str], Any]] = {
    "size": size_of, "keys": _yes, "on_full": str, "mode": _mode, "patience": _seconds,
}  # fmt: skip


def read_address(address: str) -> tuple[str | None, dict[str, Any]]:
    """The path, or None for a zone without a name, and the options."""
    parts = urlsplit(address)
    if parts.netloc:
        raise StoreError(
            f"{address!r}: a zone's path begins with a third slash, as in zone:///run/app.zone"
        )
    path = unquote(parts.path) or None
    options: dict[str, Any] = {}
    try:
        if parts.fragment:
            raise ValueError("'#' in a path is written as %23, and options follow a '?'")
        for name, text in parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True):
            if name not in OPTIONS or (path is None and name == "mode"):
                raise ValueError(f"no option {name!r}; known are {', '.join(OPTIONS)}")
            if name in options:
                raise ValueError(f"{name!r} is given twice")
            options[name] = OPTIONS[name](text)
    except ValueError as error:
        raise StoreError(f"{address!r}: {error}") from None
    return path, options
