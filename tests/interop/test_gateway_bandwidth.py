"""Bytes per second at the gateway: bodies wait, and nothing is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from gateway_tools import Raw, Upstream, answering, gateway, until

from headgate import Limit
from headgate.gateway import Plan
from headgate.gateway.pace import Flow, Pace, bandwidth

GET = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"
SIZE = 512 << 10


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


def fetched(url: str, **words: Any) -> tuple[float, int]:
    """Seconds for a response, and its size."""
    start = time.monotonic()
    size = len(httpx.get(url, timeout=60, **words).content)
    return time.monotonic() - start, size


@pytest.mark.parametrize("pace", [{"shared": "1MiB/second"}, {"single": "1MiB/second"}])
def test_the_bandwidth_of_responses(upstream: Upstream, pace: dict[str, str]) -> None:
    upstream.app = answering(bytes(SIZE))
    with gateway(upstream.url, download=Pace(**pace)) as front:  # type: ignore[arg-type] # words
        seconds, size = fetched(front.url)
    assert size == SIZE
    assert 0.3 < seconds < 30  # 0.5 s less what passes at once


def test_the_bandwidth_of_requests(upstream: Upstream) -> None:
    upstream.app = answering()
    with gateway(upstream.url, upload=Pace("1MiB/second")) as front:
        start = time.monotonic()
        assert httpx.post(front.url, content=bytes(SIZE), timeout=60).text == "hello"
        assert 0.3 < time.monotonic() - start < 30


def test_a_bandwidth_is_shared_by_all_of_a_key(upstream: Upstream) -> None:
    upstream.app = answering(bytes(SIZE // 2))
    pace = Pace("1MiB/second", key="header:x-tenant")
    with gateway(upstream.url, download=pace) as front, ThreadPoolExecutor(2) as pool:
        start = time.monotonic()
        same = [pool.submit(fetched, front.url, headers={"X-Tenant": "a"}) for _ in range(2)]
        assert {each.result()[1] for each in same} == {SIZE // 2}
        assert 0.3 < time.monotonic() - start < 30
    pace = Pace("16KiB/second", key="header:x-tenant")
    with gateway(upstream.url, download=pace) as front, Raw(front.port) as raw:
        raw.send(GET.replace(b"\r\n\r\n", b"\r\nX-Tenant: a\r\n\r\n"))
        raw.until(b"\r\n\r\n")
        upstream.app = answering(bytes(1 << 10))
        for headers in ({"X-Tenant": "b"}, {}):  # these need not wait for the other's 16 seconds
            assert fetched(front.url, headers=headers)[0] < 10


def test_what_passes_before_a_response_is_held_up(upstream: Upstream) -> None:
    upstream.app = answering(bytes(64 << 10))
    pace = Pace(single="1kB/second", after=128 << 10)
    with gateway(upstream.url, download=pace) as front:
        assert fetched(front.url)[0] < 30


def test_a_pause_for_the_pace_is_no_time_out(upstream: Upstream) -> None:
    upstream.app = answering(bytes(8 << 10))
    plan = Plan(upstream.url, between=0.15)
    with gateway(plan, download=Pace(single="20kB/second"), upload=Pace("20kB/second")) as front:
        assert httpx.post(front.url, content=bytes(8 << 10)).status_code == 200


def test_who_leaves_while_its_body_is_held_up(upstream: Upstream) -> None:
    upstream.app = answering(bytes(SIZE))
    pace = Pace(single="1kB/second")
    with gateway(upstream.url, "1 concurrent", download=pace) as front:
        with Raw(front.port) as raw:
            raw.send(GET)
            raw.until(b"\r\n\r\n")
            assert httpx.get(front.url).status_code == 429

        def free() -> bool:
            with httpx.stream("GET", front.url) as response:
                return response.status_code == 200

        until(free)


def test_a_bandwidth_as_a_limit() -> None:
    assert str(bandwidth("10MiB/second")) == "10MiB/second token-bucket burst 1MiB"
    assert str(bandwidth("4KiB/second")) == "4KiB/second token-bucket burst 2KiB"
    assert bandwidth("1MiB/second gcra burst 1MiB") == Limit.parse("1MiB/second gcra burst 1MiB")
    with pytest.raises(ValueError, match="10MiB/second"):
        bandwidth("5 concurrent")


def test_pieces_make_up_the_whole() -> None:
    async def main() -> list[bytes]:
        flow = Flow(None, "", 1e9, 0, 1000)
        return [piece async for piece in flow.pieces(bytes(range(250)) * 10)]

    pieces = asyncio.run(main())
    assert b"".join(pieces) == bytes(range(250)) * 10
    assert [len(piece) for piece in pieces] == [1000, 1000, 500]
