"""requests with limits, against a real server: what is sent, what is held, and for how long."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from outgoing_tools import START, Provider, walking
from requests.adapters import HTTPAdapter

from headgate import Gate, Limiter, LimitExceeded, ManualClock, Refused
from headgate.integrations.meter import Reply
from headgate.integrations.requests import AskedToWait, RateLimitAdapter
from servers import Server, free_port


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as started:
        yield started


class Client:
    """A session with an adapter, at the provider's."""

    def __init__(self, provider: Provider, *limits: str, **options: Any) -> None:
        self.adapter = RateLimitAdapter(*limits, **{"wait": 0, **options})
        self.session = requests.Session()
        self.session.mount("http://", self.adapter)
        self.url = provider.url

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.session.get(self.url + path, **options)

    def post(self, path: str, **options: Any) -> requests.Response:
        return self.session.post(self.url + path, **options)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()


def total_tokens(reply: Reply) -> int:
    assert reply.whole
    tokens: int = reply.json()["usage"]["total_tokens"]
    return tokens


def test_five_lines(provider: Provider) -> None:
    session = requests.Session()
    session.mount("http://", RateLimitAdapter("2/minute first-hit", wait=0))
    assert [session.get(f"{provider.url}/ok").text for _ in range(2)] == ["ok", "ok"]
    with pytest.raises(LimitExceeded) as refused:
        session.get(f"{provider.url}/ok")
    assert refused.value.key == f"127.0.0.1:{provider.port}"
    session.close()
    assert len(provider.calls) == 2  # the third was never sent


def test_a_call_waits_for_its_turn(provider: Provider) -> None:
    clock = ManualClock(START)
    with Client(provider, "1/second even", wait=None, clock=clock) as client, walking(clock):
        for _ in range(3):
            client.get("/ok")
    assert clock.now() == START + 2


def test_the_server_is_listened_to(provider: Provider) -> None:
    clock = ManualClock(START)
    with Client(provider, wait=10, jitter=0, clock=clock) as client:
        assert client.get("/say/429?Retry-After=7").status_code == 429
        with walking(clock):
            client.get("/ok")
        assert clock.now() == START + 7
        client.get("/say/200?X-RateLimit-Remaining=0&X-RateLimit-Reset=600")
        with pytest.raises(AskedToWait, match="x-ratelimit-reset: 600"):
            client.get("/ok")
    assert provider.calls == ["/say/429", "/ok", "/say/200"]


def test_every_hop_counts(provider: Provider) -> None:
    with Client(provider, "1 concurrent", "3/minute first-hit") as client:
        assert client.get("/away").text == "ok"
        with pytest.raises(LimitExceeded):
            client.get("/away")
    assert provider.calls == ["/away", "/ok", "/away"]


def test_a_permit_is_held_until_the_body_ends(provider: Provider) -> None:
    with Client(provider, "1 concurrent") as client:
        with client.get("/slow", stream=True) as response:
            pieces = response.iter_content(5)
            assert next(pieces) == b"first"
            with pytest.raises(LimitExceeded):
                client.get("/ok")
            provider.go.set()
            assert b"".join(pieces) == b"second"
            client.get("/ok")  # read to its end, though not left yet
        provider.go.clear()
        client.get("/slow", stream=True).close()  # closed, though not read
        for path in ("/empty", "/ok", "/gzip", "/say/500", "/usage"):
            client.get(path)
            client.session.head(client.url + path)
            raw = client.get(path, stream=True).raw
            while raw.read(7):
                pass
            assert client.get(path, stream=True).raw.read() is not None
            for _ in client.get(path, stream=True).iter_content(7):
                pass
        client.get("/ok")


def test_a_broken_call_gives_back(provider: Provider) -> None:
    with Client(provider, "1 concurrent") as client:
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            client.get("/broken")
        with pytest.raises(requests.exceptions.ConnectionError):
            client.session.get(f"http://127.0.0.1:{free_port()}/")
        with pytest.raises(requests.exceptions.ConnectionError):
            client.get("/slow", timeout=0.05)
        client.get("/ok")


def test_a_response_that_is_dropped_gives_back_at_once(provider: Provider) -> None:
    gc.disable()
    try:
        with Client(provider, "1 concurrent") as client:
            response = client.get("/slow", stream=True)
            with pytest.raises(LimitExceeded):
                client.get("/ok")
            del response
            client.get("/ok")
    finally:
        gc.enable()


def test_threads_never_exceed(provider: Provider) -> None:
    adapter = HTTPAdapter(pool_maxsize=24)
    with Client(provider, "3 concurrent", wait=30, adapter=adapter) as client:
        threads = [threading.Thread(target=client.get, args=("/ok",)) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(provider.calls) == 24
    assert provider.most <= 3


def test_a_gate_and_a_limiter(provider: Provider) -> None:
    rules = """
    {"version": 1, "rules": [
      {"name": "guess", "match": {"method": "POST", "path": "/say/*", "host": "127.0.0.1",
       "header": {"x-tenant": "blue"}, "origin": "shop"}, "limit": "1/minute first-hit",
       "count": "failures"}]}
    """
    with Client(provider, gate=Gate(rules), origin="shop") as client:
        client.session.headers["X-Tenant"] = "blue"
        for _ in range(3):
            client.post("/say/200")
        client.get("/say/500")
        client.post("/say/500")
        with pytest.raises(Refused, match="guess"):
            client.post("//say/%32%300/")
    limiter = Limiter("1/minute first-hit")
    with Client(provider, limiter=limiter) as one, Client(provider, limiter=limiter) as other:
        one.get("/ok")
        with pytest.raises(LimitExceeded):
            other.get("/ok")


@pytest.mark.parametrize("path", ["/usage", "/gzip"])
def test_metered(provider: Provider, path: str) -> None:
    with Client(
        provider, "1000/hour first-hit", key="host",
        cost=lambda request: len(request.body), settle=total_tokens,
    ) as client:  # fmt: skip
        limiter = client.adapter.outgoing.limiter

        def left() -> Any:
            return limiter.peek("127.0.0.1").remaining

        data = b"x" * 500
        assert client.post(path, data=data).json()["usage"]
        assert left() == 993
        response = client.post(path, data=data, stream=True)
        assert left() == 493
        assert len(b"".join(response.iter_content(20))) > 100
        assert left() == 986
        assert client.post(path, data=data, stream=True).raw.read()  # as it travelled
        assert left() == 979
        client.post("/say/500", data=data)
        with pytest.raises(requests.exceptions.ConnectionError):
            client.session.post(f"http://127.0.0.1:{free_port()}/", data=data)
        assert left() == 979


def test_adapters_stand_on_each_other(provider: Provider) -> None:
    tokens = RateLimitAdapter("10/hour first-hit", wait=0, cost=8, settle=total_tokens)
    with Client(provider, "1 concurrent", adapter=tokens) as client:
        client.get("/usage")
        for _ in range(2):  # 3 are left of 10, and the permit came back
            with pytest.raises(LimitExceeded, match="10/hour"):
                client.get("/usage")


def test_other_adapters(provider: Provider) -> None:
    class Constant(HTTPAdapter):
        def send(self, *args: Any, **options: Any) -> requests.Response:
            response = requests.Response()
            response.status_code = 200
            return response

    with Client(provider, "1 concurrent", adapter=Constant()) as client:
        for _ in range(2):
            assert client.get("/ok").status_code == 200


def test_on_a_server(provider: Provider) -> None:
    with (
        Server() as redis,
        Client(
            provider, "1 concurrent", "4/hour first-hit", store=f"{redis.url}?budget=10s"
        ) as client,
    ):
        for _ in range(3):
            client.get("/ok")
        response = client.get("/slow", stream=True)
        with pytest.raises(LimitExceeded):
            client.get("/ok")
        response.close()
