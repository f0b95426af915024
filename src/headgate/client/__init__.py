"""The client of a headgate service: whether a call may go ahead, asked over HTTP.

    from headgate.client import Client

    with Client("headgate://localhost:8080") as client:
        verdict = client.check(rule="api", key="user:42")
        with client.hold(path="/export", user="42"):
            ...

For limits of your own on the service's store, give a Limiter the same address:
`Limiter("100/minute", store="headgate://localhost:8080")`.
"""

from __future__ import annotations

from ..verdict import Refused
from .awaited import AsyncClient
from .base import Rejected
from .plain import Client
from .verdicts import Part, Verdict

__all__ = ["AsyncClient", "Client", "Part", "Refused", "Rejected", "Verdict"]
