"""Links: flows carried to Redis or Valkey servers, by threads or by event loops."""

from __future__ import annotations

from .address import Options, read_address
from .aio import AsyncLink
from .calls import Call, Command, Flow, Raw, packed, prepared
from .sync import SyncLink
from .target import Target, target_of

__all__ = [
    "AsyncLink",
    "Call",
    "Command",
    "Flow",
    "Options",
    "Raw",
    "SyncLink",
    "Target",
    "packed",
    "prepared",
    "read_address",
    "target_of",
]
