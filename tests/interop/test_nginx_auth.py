"""nginx asks headgate by auth_request: the shipped configuration, in front of a real upstream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgi_tools import Served, rules_text
from nginx_site import Site

from headgate.gate import AsyncGate
from headgate.service.forward import Forward

RULES = rules_text(
    '{"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"],'
    ' "limit": "2/minute fixed-window"}',
    '{"name": "api", "match": {"path": "/api/*"}, "key": ["header:x-tenant"],'
    ' "limits": ["3/minute fixed-window", "100/hour"]}',
    '{"name": "busy", "match": {"path": "/busy"}, "limit": "1/hour", "status": 503}',
    '{"name": "moved", "match": {"path": "/moved"}, "limit": "1/hour",'
    ' "otherwise": {"redirect": "https://example.com/later"}}',
    '{"name": "closed", "match": {"path": "/closed"}, "deny": {"networks": ["127.0.0.0/8"]}}',
    '{"name": "held", "match": {"path": "/held"}, "limit": "1 concurrent"}',
    '{"name": "fails", "match": {"path": "/fails"}, "limit": "1/hour", "count": "failures"}',
    '{"name": "bytes", "match": {"path": "/bytes"}, "limit": "10/hour token-bucket",'
    ' "cost": {"size": "1B"}}',
    '{"name": "shop", "match": {"host": "shop.example"}, "limit": "1/hour"}',
)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("nginx"), RULES)
    try:
        with site.nginx.serving(site.port):
            yield site
    finally:
        site.close()


@pytest.fixture
def site(standing: Site) -> Site:
    standing.renew()
    return standing


def test_the_shipped_configuration_is_right(site: Site) -> None:
    said = site.nginx.test()
    assert "test is successful" in said
    assert "[warn]" not in said


def test_a_refusal_reaches_the_client(site: Site) -> None:
    answers = [site.client.post("/login", content=b"x" * 10) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["ratelimit"] for answer in answers[:2]] == [
        '"login";r=1;t=20', '"login";r=0;t=20',
    ]  # fmt: skip
    assert answers[0].text == "hello"
    assert "retry-after" not in answers[0].headers
    refused = answers[2]
    assert refused.headers["retry-after"] == "20"
    assert refused.headers["ratelimit-policy"] == '"login";q=2;w=60'
    assert refused.headers["ratelimit"] == '"login";r=0;t=20'
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["violated-policies"] == ["login"]
    assert refused.json()["status"] == 429
    assert "x-headgate-body" not in refused.headers
    assert site.upstream.seen == ["POST /login 10"] * 2  # the body went to the upstream alone
    site.clock.advance(20)
    assert site.client.post("/login").status_code == 200
    assert site.client.get("/login").status_code == 200  # by its method, no rule's


def test_by_header(site: Site) -> None:
    def get(tenant: str) -> httpx.Response:
        return site.client.get("/api/orders?page=2", headers={"X-Tenant": tenant})

    assert [get("a").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert get("b").status_code == 200
    assert get("b").headers["ratelimit-policy"] == '"api#0";q=3;w=60, "api#1";q=100;w=3600'
    assert site.upstream.seen[0] == "GET /api/orders?page=2 0"


def test_statuses(site: Site) -> None:
    assert [site.client.get("/busy").status_code for _ in range(2)] == [200, 503]
    assert site.client.get("/busy").json()["status"] == 503
    denied = site.client.get("/closed")
    assert (denied.status_code, denied.json()["title"]) == (403, "Forbidden")
    assert "retry-after" not in denied.headers
    assert site.client.get("/moved").status_code == 200
    moved = site.client.get("/moved")
    assert (moved.status_code, moved.headers["location"]) == (303, "https://example.com/later")


def test_by_host_and_by_size(site: Site) -> None:
    shop = [site.client.get("/", headers={"Host": "Shop.Example"}) for _ in range(2)]
    assert [answer.status_code for answer in shop] == [200, 429]
    assert site.client.get("/").status_code == 200
    assert site.client.post("/bytes", content=b"x" * 6).status_code == 200
    assert site.client.post("/bytes", content=b"x" * 6).status_code == 429
    assert site.client.post("/bytes", content=b"x" * 4).status_code == 200


def test_what_nobody_gives_back_is_not_held(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/held", "/fails"):
        assert [site.client.get(path).status_code for _ in range(3)] == [200] * 3
    warned = [record.args for record in caplog.records if "only asks" in record.message]
    assert warned == [("held",), ("fails",)]


@pytest.mark.parametrize(
    "spelling",
    ["/login", "//login", "/login/", "/./x/../login", "/%6Cogin", "/%2Flogin", "/login?a=1",
     "/login#x"],
)  # fmt: skip
def test_spellings_of_a_path(site: Site, spelling: str) -> None:
    assert [site.client.post("/login").status_code for _ in range(2)] == [200, 200]
    answer = site.sent(
        f"POST {spelling} HTTP/1.1\nHost: a\nContent-Length: 0\nConnection: close\n\n"
    )
    assert answer.startswith(b"HTTP/1.1 429 "), answer


def test_a_client_cannot_lie(site: Site) -> None:
    lies = {
        "X-Forwarded-For": "192.0.2.1", "X-Real-IP": "192.0.2.1", "Forwarded": "for=192.0.2.1",
        "X-Original-URI": "/other", "X-Original-URL": "http://a/other",
        "X-Original-Method": "GET", "X-Forwarded-Method": "GET", "X-Forwarded-Host": "other",
        "X-Original-Content-Length": "0",
    }  # fmt: skip
    assert [site.client.post("/login").status_code for _ in range(2)] == [200, 200]
    assert site.client.post("/login", headers=lies).status_code == 429
    assert site.client.get("/_headgate", headers=lies).status_code == 404


def test_nginx_refuses_as_itself(site: Site) -> None:
    """What headgate has not refused is not told as a limit."""
    site.headgate.app = refused_without_a_word
    answer = site.client.get("/")
    assert answer.status_code == 403
    assert "problem" not in answer.text


async def refused_without_a_word(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 403, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def failing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 500, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def asleep(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize("app", [failing, asleep])
def test_without_headgate_requests_pass(tmp_path: Path, app: Any) -> None:
    site = Site(tmp_path, RULES, patience="1s")
    site.headgate.app = app
    try:
        with site.nginx.serving(site.port):
            answer = site.client.get("/")
    finally:
        site.close()
    assert (answer.status_code, answer.text) == (200, "hello")


def test_with_headgate_gone_requests_pass(tmp_path: Path) -> None:
    site = Site(tmp_path, RULES)
    site.headgate.close()
    try:
        with site.nginx.serving(site.port):
            assert [site.client.post("/login").status_code for _ in range(4)] == [200] * 4
    finally:
        site.client.close()
        site.upstream.close()


def test_a_missing_header_is_told() -> None:
    served = Served()
    try:
        with served.client(Forward(AsyncGate(RULES))) as client:
            answer = client.get("/auth/nginx", headers={"X-Original-Method": "GET"})
            assert answer.status_code == 400
            assert "proxy_set_header X-Original-URI $request_uri;" in answer.json()["detail"]
            ask = {"X-Original-URI": "/", "X-Original-Method": "GET"}
            assert client.get("/auth/nginx", headers=ask).json()["field"] == "X-Forwarded-For"
            ask["X-Forwarded-For"] = "192.0.2.1"
            assert client.get("/auth/nginx", headers=ask).status_code == 204
            assert client.get("/auth/nginx?users=X", headers=ask).status_code == 400
            assert client.get("/auth/other", headers=ask).status_code == 404
            assert json.loads(client.get("/auth/nginx").content)["title"] == "Bad Request"
    finally:
        served.close()
