"""What `benchmarks.envoy` serves: our service with rules, and the same server with a constant."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

__all__ = ["main"]

TREE = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 1000000}
  - key: path
    value: /cart
    rate_limit: {unit: second, requests_per_unit: 1000000}
"""
OWN = """
version: 1
rules:
  - name: per-user
    match: {entries: {user: "*"}}
    key: ["entry:user"]
    limit: 1000000/minute
"""
ANSWER = b"\0\0\0\0\x02\x08\x01"
START = {
    "type": "http.response.start", "status": 200, "trailers": True,
    "headers": [(b"content-type", b"application/grpc")],
}  # fmt: skip
BODY = {"type": "http.response.body", "body": ANSWER, "more_body": False}
END = {"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]}


async def constant(scope: Any, receive: Any, send: Any) -> None:
    """The smallest gRPC handler that reads its request."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send(BODY)
    await send(END)


def _made(what: str) -> Any:
    if what == "constant":
        return constant
    from headgate import AsyncGate
    from headgate.rules.envoy import read_envoy
    from headgate.rules.reading import read_rules
    from headgate.service.envoy.app import EnvoyService

    rules: Any = read_envoy(TREE) if what == "tree" else read_rules(OWN)
    return EnvoyService(AsyncGate(rules))


if "ENVOY_BENCH" in os.environ:
    app = _made(os.environ["ENVOY_BENCH"])


async def _pyvoy(what: str) -> None:
    from pyvoy import PyvoyServer

    server = PyvoyServer(
        "benchmarks.envoy_apps:app",
        env={"ENVOY_BENCH": what},
        lifespan=False,
        additional_envoy_args=["--concurrency", "1"],
    )
    async with server:
        print(server.listener_port, flush=True)
        await asyncio.to_thread(sys.stdin.read)  # until whoever started us lets go


async def _grpcio() -> None:
    import grpc

    class Empty(grpc.GenericRpcHandler):  # type: ignore[misc] # no types are known
        def service(self, details: Any) -> Any:
            async def handler(request: bytes, context: Any) -> bytes:
                return b"\x08\x01"

            return grpc.unary_unary_rpc_method_handler(handler)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Empty(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


def main(what: str) -> None:
    """Serve, print the port, and end with standard input."""
    asyncio.run(_grpcio() if what == "grpcio" else _pyvoy(what))


if __name__ == "__main__":
    main(sys.argv[1])
