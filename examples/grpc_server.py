"""A gRPC service behind a gate: each user may ask so often, and have one stream open.

Without generated code, so that it runs as it is; with it nothing else changes. A real program
gives the gate no clock.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import grpc

from headgate import Gate, ManualClock
from headgate.integrations.grpc_server import RateLimitInterceptor

RULES = """{
  "version": 1,
  "rules": [
    {"name": "asking", "match": {"path": "/shop.Stock/Get"}, "key": ["user"], "limit": "2/minute"},
    {"name": "watching", "match": {"path": "/shop.Stock/Watch"}, "key": ["user"],
     "limit": "1 concurrent", "status": 503}
  ]
}"""


def get(goods: bytes, context: Any) -> bytes:
    return b"3 " + goods


sold = Event()


def watch(goods: bytes, context: Any) -> Iterator[bytes]:
    yield b"3 " + goods
    sold.wait(10)
    yield b"2 " + goods


def user_of(context: Any) -> str | None:
    """Whoever it says; a real service believes nobody without a token."""
    return dict(context.invocation_metadata()).get("user")


def story(channel: Any) -> list[str]:
    told = []
    ask, listen = channel.unary_unary("/shop.Stock/Get"), channel.unary_stream("/shop.Stock/Watch")
    for user in ("ann", "ann", "ann", "bob"):
        call = ask.future(b"cups", metadata=[("user", user)])
        wait = dict(call.trailing_metadata()).get("retry-after")
        told.append(f"{user}: {call.code().name}" + (f", again in {wait} s" if wait else ""))
    first = listen(b"cups", metadata=[("user", "ann")])
    seen = [next(first)]
    second = listen(b"plates", metadata=[("user", "ann")])
    told.append(f"a second stream: {second.code().name}")
    sold.set()
    seen.extend(first)
    told.append(f"the first: {b', '.join(seen).decode()}")
    third = listen(b"plates", metadata=[("user", "ann")])
    told.append(f"a third: {b', '.join(third).decode()}")
    return told


def main() -> list[str]:
    sold.clear()
    gate = Gate(RULES, clock=ManualClock())
    with ThreadPoolExecutor(4) as pool:
        guard = RateLimitInterceptor(gate=gate, user=user_of)
        server = grpc.server(pool, interceptors=[guard])
        handlers = {
            "Get": grpc.unary_unary_rpc_method_handler(get),
            "Watch": grpc.unary_stream_rpc_method_handler(watch),
        }
        service = grpc.method_handlers_generic_handler("shop.Stock", handlers)
        server.add_generic_rpc_handlers((service,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            told = story(channel)
        server.stop(5).wait()  # in order: what is under way may end
    gate.close()
    print(*told, sep="\n")
    return told


if __name__ == "__main__":
    main()
