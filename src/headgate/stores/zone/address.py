"""Addresses: `zone:///run/app.zone?size=16MiB&keys=yes`, read into a store's arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from ...errors import StoreError

__all__ = ["read_address", "size_of"]

SCHEME = "zone://"
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
    if re.fullmatch("[0-7]{3,4}", text) is None:
        raise ValueError(f"mode is written as 0600, not {text!r}")
    return int(text, 8)


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
    # By hand: urllib drops line ends and tabs, which may stand in a path like all else.
    body, mark, _ = address.removeprefix(SCHEME).partition("#")
    place, _, query = body.partition("?")
    options: dict[str, Any] = {}
    try:
        if not address.startswith(SCHEME) or (place and not place.startswith("/")):
            raise ValueError("a zone's path begins with a third slash, as in zone:///run/app.zone")
        if mark:
            raise ValueError("'#' in a path is written as %23, and options follow a '?'")
        path = _path(place)
        for name, text in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
            if name not in OPTIONS or (not path and name == "mode"):
                raise ValueError(f"no option {name!r}; known are {', '.join(OPTIONS)}")
            if name in options:
                raise ValueError(f"{name!r} is given twice")
            options[name] = OPTIONS[name](text)
    except ValueError as error:
        raise StoreError(f"{address!r}: {error}") from None
    return path or None, options


def _path(text: str) -> str:
    """The path that a text with %-signs means, whatever bytes it is made of."""
    try:
        return os.fsdecode(unquote_to_bytes(os.fsencode(text)))
    except UnicodeEncodeError:
        raise ValueError("there is a character in it that no path can have") from None
