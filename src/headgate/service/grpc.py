"""gRPC: the process that speaks with Envoy, by pyvoy, or by grpcio where that is missing.

pyvoy is Envoy's own HTTP/2 with Python inside, and several times as fast.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .control import Line, listen
from .servers import bound, spare_collector
from .settings import Listen, SettingsError
from .worker import SETTINGS, Parts

if TYPE_CHECKING:
    from .envoy.app import EnvoyService
    from .settings import Settings

__all__ = ["Grpcio", "Pyvoy", "server_of"]

CONTROL = "HEADGATE_CONTROL"
"""The variable of the environment that has the path of the control connection."""
logger = logging.getLogger("headgate.service")


def __getattr__(name: str) -> Any:
    """`app` is made when pyvoy asks for it, in the process that serves it."""
    if name == "app":
        return _App()
    raise AttributeError(name)


class _App:
    """The application with everything that it needs, which begins and ends with it."""

    def __init__(self) -> None:
        from .envoy.app import EnvoyService
        from .logs import set_up
        from .settings import Settings

        settings = Settings.from_json(os.environ[SETTINGS])
        set_up(settings.log, settings.log_level)
        self._parts = Parts(settings)
        self._service = EnvoyService(
            self._parts.gate, largest=settings.max_body, patience=settings.timeout,
            token=settings.api_token(),
        )  # fmt: skip
        self._deaf: Callable[[], None] = _nothing

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, or the beginning and the end."""
        if scope["type"] != "lifespan":
            await self._service(scope, receive, send)
            return
        while True:
            what = (await receive())["type"]
            if what == "lifespan.startup":
                await self._parts.begin()
                spare_collector()
                if CONTROL in os.environ:
                    self._deaf = listen(os.environ[CONTROL], self._parts.reload, _end)
            else:
                self._deaf()
                await self._service.close()
                await self._parts.end()
            await send({"type": f"{what}.complete"})
            if what == "lifespan.shutdown":
                return


def _nothing() -> None:
    """There is no control connection."""


def _end() -> None:
    """The master is gone."""
    os.kill(os.getpid(), signal.SIGTERM)  # Envoy's to handle


class Pyvoy:
    """The process, as the master sees it."""

    def __init__(self, listen: Listen, settings: Settings) -> None:
        self._listen = listen
        self._settings = settings
        self._server: Any = None
        self._line: Line | None = None

    async def start(self) -> str:
        """Start it, and say where it listens."""
        from pyvoy import PyvoyServer, StartupError

        settings = self._settings
        if self._listen.port:
            bound(self._listen).close()  # an error that says why, which Envoy would not
        tls: dict[str, Any] = {}
        if settings.tls_cert:
            tls = {"tls_cert": Path(settings.tls_cert), "tls_key": Path(settings.tls_key),
                   "tls_enable_http3": False}  # fmt: skip
        if self._line is None:
            self._line = Line()
        self._server = PyvoyServer(
            "headgate.service.grpc:app", address=self._listen.host, port=self._listen.port,
            lifespan=True, stdout=None, stderr=None,
            env={SETTINGS: settings.as_json(), CONTROL: self._line.path},
            additional_envoy_args=["--concurrency", "1"], **tls,
        )  # fmt: skip
        try:
            await self._server.start()
        except StartupError as error:
            raise SettingsError(f"gRPC cannot be served at {self._listen}: {error}") from None
        found = Listen(self._listen.host, self._server.listener_port)
        self._listen = found  # the same one when it is started again
        return str(found)

    async def wait(self) -> None:
        """Until it has ended."""
        await self._server.wait()

    def reload(self) -> None:
        """Have it look at the rules now; Envoy takes the signals that workers get."""
        if self._line is not None:
            self._line.say()

    async def stop(self) -> None:
        """End it."""
        try:
            if self._server is not None:
                await self._server.stop()
        finally:
            if self._line is not None:
                self._line.close()


class Grpcio:
    """The same by grpcio, inside the master: slower, without quotas."""

    def __init__(self, listen: Listen, settings: Settings) -> None:
        self._listen = listen
        self._settings = settings
        self._server: Any = None
        self._parts: Parts | None = None

    async def start(self) -> str:
        """Start it, and say where it listens."""
        import grpc

        from .envoy.app import EnvoyService

        settings = self._settings
        self._parts = parts = Parts(settings)
        await parts.begin()
        token = settings.api_token()
        self._service = EnvoyService(parts.gate, largest=settings.max_body, token=token)
        self._server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", settings.max_body)]
        )
        self._server.add_generic_rpc_handlers((_Handler(grpc, self._service),))
        credentials = None
        if settings.tls_cert:
            pair = Path(settings.tls_key).read_bytes(), Path(settings.tls_cert).read_bytes()
            credentials = grpc.ssl_server_credentials([pair])
        where = str(self._listen)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(where)
            else:
                port = self._server.add_secure_port(where, credentials)
        except RuntimeError as error:
            raise SettingsError(f"gRPC cannot be served at {where}: {error}") from None
        await self._server.start()
        return str(Listen(self._listen.host, port, self._listen.path))

    async def wait(self) -> None:
        """Until it has ended."""
        await self._server.wait_for_termination()

    def reload(self) -> None:
        """Have it look at the rules now."""
        if self._parts is not None:
            self._parts.reload()

    async def stop(self) -> None:
        """End it."""
        if self._server is not None:
            await self._service.drain()
            await self._server.stop(self._settings.drain)
            if self._parts is not None:
                await self._parts.end()


class _Handler:
    """Unary calls, in bytes."""

    def __init__(self, grpc: Any, service: EnvoyService) -> None:
        self._grpc = grpc
        self._service = service

    def service(self, details: Any) -> Any:
        """What answers at a path; None if nothing does."""
        from .envoy.app import WANTED
        from .envoy.status import Code, GrpcError

        answer = self._service._unary.get(details.method)
        if answer is None:
            return None
        codes = {code.value[0]: code for code in self._grpc.StatusCode}
        given = [
            value if isinstance(value, bytes) else value.encode("latin-1", "replace")
            for name, value in details.invocation_metadata
            if name == "authorization"
        ]
        admitted = self._service.admits(details.method, given)

        async def unary(data: bytes, context: Any) -> bytes:
            try:
                if not admitted:
                    raise GrpcError(Code.UNAUTHENTICATED, WANTED)
                return await answer(data)
            except GrpcError as error:
                await context.abort(codes[int(error.code)], error.problem)
                raise  # it has raised already

        return self._grpc.unary_unary_rpc_method_handler(unary)


def server_of(listen: Listen, settings: Settings) -> Pyvoy | Grpcio | None:
    """The best that is installed; None, and a warning, if there is nothing."""
    if find_spec("pyvoy") is not None and not listen.path:
        return Pyvoy(listen, settings)
    if find_spec("grpc") is not None:
        logger.warning("gRPC is served by grpcio, which is slow; for more: pip install pyvoy")
        return Grpcio(listen, settings)
    logger.warning("gRPC is off, as nothing serves it: pip install pyvoy, or say --grpc off")
    return None
