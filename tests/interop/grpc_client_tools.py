"""What the tests of gRPC clients share: a provider that answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Provider:
    """A server whose methods are named after their kinds; a message says what to do.

    ok         well
    slow       the second half waits for `go`
    exhausted  RESOURCE_EXHAUSTED with the trailing metadata of the rest: "exhausted retry-after=5"
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.go = threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        plain = {
            kind: getattr(grpc, f"{kind}_rpc_method_handler")(getattr(self, kind)) for kind in KINDS
        }
        handler = grpc.method_handlers_generic_handler("provider.Api", plain)
        self.server.add_generic_rpc_handlers((handler,))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def done(self, kind: str, messages: list[bytes], context: Any) -> bytes:
        self.calls.append(kind)
        first, *words = messages[0].decode().split()
        if first == "slow":
            self.go.wait(60)
        if first == "exhausted":
            context.set_trailing_metadata([tuple(word.split("=")) for word in words])
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
        return b"done"

    def unary_unary(self, message: bytes, context: Any) -> bytes:
        return self.done("unary_unary", [message], context)

    def unary_stream(self, message: bytes, context: Any) -> Iterator[bytes]:
        yield b"first"
        yield self.done("unary_stream", [message], context)

    def stream_unary(self, messages: Iterator[bytes], context: Any) -> bytes:
        return self.done("stream_unary", list(messages), context)

    def stream_stream(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield b"first"
        yield self.done("stream_stream", list(messages), context)

    def close(self) -> None:
        self.go.set()
        self.server.stop(None).wait()


every_kind = pytest.mark.parametrize("kind", KINDS)


RULES = """
{"version": 1, "rules": [
  {"name": "failing", "match": {"path": "/provider.Api/unary_unary", "header": {"x-tenant": "*"},
   "resource": "api", "host": "api.example"}, "key": ["header:x-tenant"],
   "limit": "1/minute first-hit", "count": "failures"}]}
"""
BLUE = (("x-tenant", "blue"),)
