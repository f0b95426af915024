"""Codec: JSON in and out, by msgspec where it is installed."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["dumps", "loads"]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _plain_loads(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _plain_dumps(thing: Any) -> bytes:
    return _encode(thing).encode()


try:
    import msgspec  # type: ignore[import-not-found, unused-ignore] # where it is installed
except ImportError:
    loads, dumps = _plain_loads, _plain_dumps
else:
    _decoder, _encoder = msgspec.json.Decoder(), msgspec.json.Encoder()

    def loads(data: bytes) -> Any:
        """What a JSON text says; a ValueError tells what is wrong with it."""
        try:
            return _decoder.decode(data)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except UnicodeDecodeError:
            raise ValueError("it is not UTF-8") from None

    dumps = _encoder.encode  # type: ignore[assignment, unused-ignore] # the other, but in C
