"""What a limit adds to a call of an ASGI application: `python -m benchmarks.asgi`.

Applications are called directly, without sockets or a client: an awaited callable, a scope as a
server makes it for a browser, and functions that give and take the messages. What a limiter adds
is the time with it less the time without it. All of them take turns, and the best of many turns
counts for each. headgate stands before an application of two messages; the others before the
smallest one of the framework that they need. All keep their state in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Awaitable, Callable
from time import monotonic_ns, perf_counter_ns
from typing import Any

Scope = dict[str, Any]
App = Callable[..., Awaitable[None]]
Pair = tuple[App, App]
"""An application without and with a limiter."""

LIMIT = 1_000_000_000
ALGORITHMS = ("fixed-window", "sliding-window")
_CALLS, _READS = 200, 5_000
_TURNS, _QUICK = 40, 12
_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"2")],
}
_BODY = {"type": "http.response.body", "body": b"ok"}
_SCOPE: dict[str, Any] = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "method": "GET",
    "scheme": "http",
    "path": "/api/orders",
    "raw_path": b"/api/orders",
    "query_string": b"page=2",
    "root_path": "",
    "client": ("192.0.2.7", 51234),
    "server": ("192.0.2.1", 8000),
    "headers": [
        (b"host", b"shop.example"),
        (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"),
        (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        (b"accept-language", b"en-US,en;q=0.5"),
        (b"accept-encoding", b"gzip, deflate, br"),
        (b"connection", b"keep-alive"),
        (b"cookie", b"session=0123456789abcdef"),
        (b"upgrade-insecure-requests", b"1"),
    ],
}


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """The smallest application: two messages."""
    await send(_START)
    await send(_BODY)


def headgate(algorithm: str) -> Pair:
    """The middleware, with one rule, by address."""
    from headgate.integrations.asgi import RateLimitMiddleware

    return bare, RateLimitMiddleware(bare, f"{LIMIT}/hour {algorithm}")


def slowapi_middleware() -> Pair:
    """Its leaner middleware, the one that is pure ASGI, with headers."""
    from slowapi.middleware import SlowAPIASGIMiddleware
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    class Orders:  # an endpoint that is an application: nothing of Request and Response
        __name__ = "orders"
        __call__ = staticmethod(bare)

    def app(*middleware: Middleware) -> Starlette:
        made = Starlette(routes=[Route("/api/orders", Orders())], middleware=middleware)
        made.state.limiter = _slowapi_limiter(default_limits=[f"{LIMIT}/hour"])
        return made

    return app(), app(Middleware(SlowAPIASGIMiddleware))


def slowapi_decorator() -> Pair:
    """Its decorator, with headers."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def orders(request: Request) -> Response:
        return Response(b"ok")

    def app(endpoint: Any) -> Starlette:
        made = Starlette(routes=[Route("/api/orders", endpoint)])
        made.state.limiter = limiter
        return made

    limiter = _slowapi_limiter()
    return app(orders), app(limiter.limit(f"{LIMIT}/hour")(orders))


def _slowapi_limiter(**options: Any) -> Any:
    from slowapi import Limiter
    from slowapi.util import get_remote_address

    return Limiter(get_remote_address, headers_enabled=True, **options)


def fastapi_limiter() -> Pair:
    """Its dependency, as its page shows it; it sends no headers."""
    from fastapi import Depends, FastAPI
    from fastapi_limiter.depends import RateLimiter
    from pyrate_limiter import Duration, Limiter, Rate
    from starlette.responses import Response

    async def orders() -> Response:
        return Response(b"ok")

    limit = Depends(RateLimiter(limiter=Limiter(Rate(LIMIT, Duration.HOUR))))
    without, limited = FastAPI(openapi_url=None), FastAPI(openapi_url=None)
    without.get("/api/orders", response_model=None)(orders)
    limited.get("/api/orders", response_model=None, dependencies=[limit])(orders)
    return without, limited


RIVALS: dict[str, Callable[[], Pair]] = {
    "slowapi middleware": slowapi_middleware,
    "slowapi decorator": slowapi_decorator,
    "fastapi-limiter": fastapi_limiter,
}


async def _receive() -> Scope:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _drop(message: Any) -> None:
    return None


async def _batch(app: App) -> float:
    """Nanoseconds for a call; every call has a scope of its own, as frameworks write into it."""
    start = perf_counter_ns()
    for _ in range(_CALLS):
        await app({**_SCOPE}, _receive, _drop)
    return (perf_counter_ns() - start) / _CALLS


def _reads() -> float:
    start = perf_counter_ns()
    for _ in range(_READS):
        monotonic_ns()
    return (perf_counter_ns() - start) / _READS


async def _answer(app: App) -> tuple[int, frozenset[bytes]]:
    """The status that an application sends, and the names of its headers."""
    sent: list[Scope] = []

    async def keep(message: Scope) -> None:
        sent.append(message)

    await app({**_SCOPE}, _receive, keep)
    return sent[0]["status"], frozenset(name for name, _ in sent[0]["headers"])


async def _measured(algorithm: str, turns: int) -> dict[str, float]:
    pairs = {"headgate": headgate(algorithm)}
    for name, make in RIVALS.items():
        try:
            pairs[name] = make()
        except ImportError:  # not installed
            continue
    best = {name: [float("inf"), float("inf")] for name in pairs}
    clock = float("inf")
    for _ in range(turns):
        clock = min(clock, _reads())
        gc.collect()
        for name, pair in pairs.items():
            for place, app in enumerate(pair):
                best[name][place] = min(best[name][place], await _batch(app))
    status, names = await _answer(pairs["headgate"][1])
    found = {f"{name} adds": limited - without for name, (without, limited) in best.items()}
    found["ns"] = found.pop("headgate adds")
    found["yardstick_ns"] = clock
    found["bare_ns"] = best["headgate"][0]
    found["right"] = status == 200 and {b"ratelimit", b"ratelimit-policy"} <= names
    return found


def added(rival: object, make: object, algorithm: str, quick: bool) -> dict[str, float]:
    """What headgate's middleware adds in the form that this process has, and what others add."""
    return asyncio.run(_measured(algorithm, _QUICK if quick else _TURNS))


def main() -> None:
    """Print one measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="sliding-window")
    chosen = parser.parse_args()
    import headgate as package

    found = added(None, None, chosen.algorithm, chosen.quick)
    ours, clock = found["ns"], found["yardstick_ns"]
    print(f"headgate ({package.compiled}), {chosen.algorithm}, over {found['bare_ns']:,.0f} ns")
    print(f"{'':20}{'adds, ns':>10}{'clock reads':>13}{'headgate is':>14}")
    for name in ("headgate", *RIVALS):
        adds = ours if name == "headgate" else found.get(f"{name} adds")
        if adds is None:
            print(f"{name:20}not installed")
        else:
            print(f"{name:20}{adds:>10,.0f}{adds / clock:>13.0f}{ours / adds:>12.2f} x")


if __name__ == "__main__":
    main()
