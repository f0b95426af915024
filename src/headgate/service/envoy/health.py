"""Health: grpc.health.v1, as gRPC's own clients, Kubernetes and Envoy ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .status import Code, GrpcError
from .wire import BYTES, WireError, fields, number, utf8

if TYPE_CHECKING:
    from .streams import Stream

__all__ = ["Health"]

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


class Health:
    """Whether each of the services serves; "" stands for all of them."""

    def __init__(self, services: Iterable[str]) -> None:
        self._states = dict.fromkeys(("", *services), SERVING)
        self._changed = asyncio.Event()

    def set(self, serving: bool, service: str | None = None) -> None:
        """Say that a service serves, or does no longer; None: all of them."""
        for name in self._states if service is None else (service,):
            self._states[name] = SERVING if serving else NOT_SERVING
        self._changed.set()
        self._changed = asyncio.Event()

    def serving(self, service: str = "") -> bool:
        """Whether a service serves."""
        return self._states.get(service) == SERVING

    async def check(self, data: bytes) -> bytes:
        """Check: a HealthCheckResponse for a HealthCheckRequest."""
        service = _service(data)
        if service not in self._states:
            raise GrpcError(Code.NOT_FOUND, f"there is no service {service!r}")
        return number(1, self._states[service])

    async def watch(self, stream: Stream) -> None:
        """Watch: the state now, and again whenever it changes."""
        data = await stream.read()
        if data is None:
            raise GrpcError(Code.INTERNAL, "the request has no message")
        service, told = _service(data), 0
        gone = asyncio.ensure_future(stream.gone())
        try:
            while not gone.done():
                changed = self._changed
                state = self._states.get(service, SERVICE_UNKNOWN)
                if state != told:
                    await stream.send(number(1, state))
                    told = state
                waiting = asyncio.ensure_future(changed.wait())
                await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            gone.cancel()


def _service(data: bytes) -> str:
    service = ""
    try:
        for name, kind, value in fields(data):
            if name == 1 and kind == BYTES:
                service = utf8(value)
    except WireError as error:
        raise GrpcError(Code.INVALID_ARGUMENT, str(error)) from None
    return service
