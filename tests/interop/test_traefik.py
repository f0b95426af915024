"""Traefik asks headgate by ForwardAuth: requests as Traefik sends them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from asgi_tools import BROWSER, Served, clock, rules_text

from headgate.addresses import Trusted
from headgate.gate import AsyncGate
from headgate.service.forward import Forward
from headgate.service.original import known_by

RULES = rules_text(
    '{"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"],'
    ' "limit": "2/minute fixed-window"}',
    '{"name": "user", "match": {"path": "/me"}, "key": ["user"], "limit": "1/hour",'
    ' "plans": {"by": "plan", "pro": "3/hour"}}',
    '{"name": "busy", "match": {"path": "/busy"}, "limit": "1/hour", "status": 503}',
    '{"name": "odd", "match": {"path": "/odd"}, "limit": "1/hour", "status": 200}',
    '{"name": "moved", "match": {"path": "/moved"}, "limit": "1/hour",'
    ' "otherwise": {"redirect": "/later"}}',
    '{"name": "data", "match": {"path": "/data"}, "limit": "1/hour",'
    ' "otherwise": {"data": {"items": []}}}',
    '{"name": "page", "match": {"path": "/page"}, "limit": "1/hour",'
    ' "otherwise": {"page": "<p>Later</p>"}}',
    '{"name": "gone", "match": {"path": "/gone"}, "limit": "1/hour",'
    ' "otherwise": {"page": "no-such-file.html"}}',
    '{"name": "made", "match": {"path": "/made"}, "limit": "1/hour",'
    ' "otherwise": {"function": "app:made"}}',
    '{"name": "host", "match": {"host": "shop.example"}, "limit": "1/hour"}',
)


class Traefik:
    """The part of Traefik that asks.

    It sends a GET without a body to the address it was given, with the client's headers (but
    those of the connection), and the X-Forwarded ones replaced by its own.
    """

    HOPS = ("connection", "keep-alive", "te", "trailers", "transfer-encoding", "upgrade", "host",
            "content-length")  # fmt: skip

    def __init__(self, client: httpx.Client, address: str = "/auth/traefik") -> None:
        self.client = client
        self.address = address
        self.trusts = False
        """trustForwardHeader."""

    def ask(
        self, method: str, uri: str, *, peer: str = "192.0.2.7", host: str = "a.example",
        **headers: str,
    ) -> httpx.Response:  # fmt: skip
        given = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        sent = {name: value for name, value in given.items() if name not in self.HOPS}
        before = given.get("x-forwarded-for") if self.trusts else None
        sent |= {
            "x-forwarded-for": f"{before}, {peer}" if before else peer,
            "x-forwarded-method": method,
            "x-forwarded-proto": "https",
            "x-forwarded-host": host,
            "x-forwarded-uri": uri,
        }
        return self.client.get(self.address, headers=sent)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


@pytest.fixture
def app() -> Forward:
    made: dict[str, Any] = {"app:made": lambda facts: {"path": facts.path}}
    return Forward(AsyncGate(RULES, clock=clock(), functions=made))


@pytest.fixture
def traefik(served: Served, app: Forward) -> Iterator[Traefik]:
    with served.client(app) as client:
        yield Traefik(client)


def test_the_refusal_itself(traefik: Traefik) -> None:
    answers = [traefik.ask("POST", "/login?next=/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["ratelimit"] == '"login";r=1;t=20'
    assert answers[0].content == b""
    refused = answers[2]
    assert refused.headers["retry-after"] == "20"
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["violated-policies"] == ["login"]
    page = traefik.ask("POST", "/login", accept=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "Too many requests" in page.text
    assert traefik.ask("POST", "/login", peer="192.0.2.8").status_code == 200
    assert traefik.ask("GET", "/login").status_code == 200


@pytest.mark.parametrize("uri", ["//login", "/login/", "/%6Cogin", "/x/../login", "/%2flogin?a"])
def test_spellings_of_a_path(traefik: Traefik, uri: str) -> None:
    assert [traefik.ask("POST", "/login").status_code for _ in range(2)] == [200, 200]
    assert traefik.ask("POST", uri).status_code == 429


def test_a_refusal_is_never_2xx(traefik: Traefik) -> None:
    def second(path: str) -> httpx.Response:
        assert traefik.ask("GET", path).status_code == 200
        return traefik.ask("GET", path)

    assert second("/busy").status_code == 503
    assert second("/odd").status_code == 429
    moved = second("/moved")
    assert (moved.status_code, moved.headers["location"]) == (303, "https://a.example/later")
    odd = traefik.ask("GET", "/moved", host="a/b")
    assert odd.headers["location"] == "/later"
    data = second("/data")
    assert (data.status_code, data.json()) == (429, {"items": []})
    page = second("/page")
    assert (page.status_code, page.text) == (429, "<p>Later</p>")
    assert (second("/gone").status_code, second("/made").json()) == (429, {"path": "/made"})


def test_the_client_s_own_headers(traefik: Traefik) -> None:
    assert [traefik.ask("POST", "/login").status_code for _ in range(2)] == [200, 200]
    lie = traefik.ask("POST", "/login", x_forwarded_for="192.0.2.99", forwarded="for=192.0.2.98")
    assert lie.status_code == 429
    traefik.trusts = True  # then Traefik passes on what it was told, but not as its own word
    assert traefik.ask("POST", "/login", x_forwarded_for="192.0.2.99").status_code == 429


def test_proxies_in_front_of_traefik(served: Served) -> None:
    app = Forward(AsyncGate(RULES, clock=clock()), Trusted("10.0.0.0/8"))
    with served.client(app) as client:
        traefik = Traefik(client)
        traefik.trusts = True

        def ask(chain: str) -> int:
            return traefik.ask("POST", "/login", peer="10.0.0.1", x_forwarded_for=chain).status_code

        assert [ask("192.0.2.1"), ask("198.51.100.9, 192.0.2.1"), ask("192.0.2.1, 10.2.2.2")] == [
            200, 200, 429,
        ]  # fmt: skip
        assert ask("192.0.2.2") == 200


def test_host(traefik: Traefik) -> None:
    assert traefik.ask("GET", "/", host="shop.example").status_code == 200
    assert traefik.ask("GET", "/", host="Shop.Example:443").status_code == 429
    assert traefik.ask("GET", "/").status_code == 200


def test_who_it_is_is_said_by_headers_that_are_named(traefik: Traefik) -> None:
    assert [traefik.ask("GET", "/me", x_user="ann").status_code for _ in range(2)] == [200, 200]
    traefik.address += "?user=X-User&attribute.plan=X-Plan"
    assert [traefik.ask("GET", "/me", x_user="ann").status_code for _ in range(2)] == [200, 429]
    bob = [traefik.ask("GET", "/me", x_user="bob", x_plan="pro").status_code for _ in range(4)]
    assert bob == [200, 200, 200, 429]
    assert traefik.ask("GET", "/me").status_code == 200


def test_what_is_not_there_is_told(traefik: Traefik) -> None:
    answer = traefik.client.get("/auth/traefik", headers={"X-Forwarded-Uri": "/"})
    assert (answer.status_code, answer.json()["field"]) == (400, "X-Forwarded-Method")
    traefik.address += "?name=X-User"
    answer = traefik.ask("GET", "/")
    assert answer.status_code == 400
    assert "user, device, api_key, origin, attribute.NAME" in json.loads(answer.content)["detail"]


def test_the_middlewares_that_bring_a_token(served: Served) -> None:
    """As the docs have them: set before it is asked, and gone before the service gets it."""
    yaml = pytest.importorskip("yaml")
    page = (Path(__file__).parents[2] / "docs" / "traefik.md").read_text()
    shown = page.partition("## With a token")[2].partition("```yaml\n")[2].partition("```")[0]
    http = yaml.safe_load(shown)["http"]
    before, asks, behind = http["routers"]["app"]["middlewares"]
    assert "forwardAuth" in http["middlewares"][asks]

    def through(name: str, headers: dict[str, str]) -> dict[str, str]:
        custom = http["middlewares"][name]["headers"]["customRequestHeaders"]
        found = headers | {key.lower(): value for key, value in custom.items()}
        return {key: value for key, value in found.items() if value}  # an empty one is removed

    app = Forward(AsyncGate(RULES, clock=clock()), token=b"TOKEN")
    with served.client(app) as client:
        traefik = Traefik(client)
        lie = {"x-headgate-token": "x"}
        assert traefik.ask("GET", "/", **lie).status_code == 401
        told = through(before, lie)
        assert traefik.ask("GET", "/", **told).status_code == 200
        assert "x-headgate-token" not in through(behind, told)


def test_the_shipped_configuration() -> None:
    yaml = pytest.importorskip("yaml")
    path = Path(__file__).parents[2] / "examples" / "traefik" / "dynamic.yml"
    http = yaml.safe_load(path.read_text())["http"]
    address = urlsplit(http["middlewares"]["headgate"]["forwardAuth"]["address"])
    assert address.path in Forward(AsyncGate(RULES)).routes
    assert known_by(address.query.encode()) == (("user", "x-user"), ("attribute.plan", "x-plan"))
    (router,) = http["routers"].values()
    assert router["middlewares"] == ["headgate"]
