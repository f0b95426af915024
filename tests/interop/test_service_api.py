"""The HTTP API of the service, asked over real HTTP."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from service_tools import Client, Running, serving

RULES = """
version: 1
rules:
  - {name: api, match: {path: /api/*}, key: [user], limit: 3/30d fixed-window}
  - name: many
    match: {resource: many}
    key: [user]
    limits: [5/30d fixed-window, 8/day fixed-window]
  - {name: trial, match: {path: /api/*}, key: [ip], limit: 1/hour, shadow: true}
  - {name: busy, match: {resource: db}, key: [user], limit: 1 concurrent, status: 503}
  - {name: guess, match: {path: /login}, key: [user], limit: 2/30d fixed-window, count: failures}
  - {name: tokens, match: {resource: llm}, key: [user], limit: 1000/30d fixed-window}
  - {name: closed, match: {path: /closed}, deny: {users: [mallory]}}
  - {name: free, match: {path: /free}, exempt: true}
  - name: plans
    match: {resource: plans}
    key: [user]
    limit: 1/30d fixed-window
    plans: {by: plan, pro: [4/30d fixed-window]}
  - {name: pair, match: {resource: pair}, key: [user, device], limit: 1/30d fixed-window}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(RULES) as running:
        yield running


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with contextlib.closing(running.client()) as client:
        yield client


@pytest.fixture
def admin(running: Running) -> Iterator[Client]:
    with contextlib.closing(running.client("admin")) as client:
        yield client


def test_by_facts(client: Client) -> None:
    call = {"method": "get", "path": "//api/orders?x=1", "user": "ann", "ip": "192.0.2.7"}
    answers = [client.post("/v1/check", call) for _ in range(4)]
    assert [answer.json["allowed"] for answer in answers] == [True, True, True, False]
    first, last = answers[0], answers[-1]
    assert first.json["remaining"] == 2
    assert first.json["rule"] == ""
    assert first.json["status"] == 200
    assert first.json["decisions"][0]["limit"] == "3/30d fixed-window"
    assert first.headers["ratelimit"].startswith('"api";r=2;t=')
    assert first.headers["ratelimit-policy"] == '"api";q=3;w=2592000'
    assert first.headers["content-type"] == "application/json"
    assert [answer.json["shadowed"] for answer in answers[:2]] == [[], ["trial"]]
    assert last.status == 200
    assert last.json["rule"] == "api"
    assert last.json["status"] == 429
    assert 0 < last.json["retry_after"] <= 2592000
    assert 1 <= int(last.headers["retry-after"]) <= 2592000


def test_by_rule_and_key(client: Client) -> None:
    answers = [client.post("/v1/check", {"rule": "many", "key": "bob"}).json for _ in range(6)]
    assert [answer["allowed"] for answer in answers] == [True] * 5 + [False]
    assert [part["rule"] for part in answers[0]["decisions"]] == ["many#0", "many#1"]
    assert [part["remaining"] for part in answers[0]["decisions"]] == [4, 7]
    # The same key by its facts: it is used up.
    assert not client.post("/v1/check", {"resource": "many", "user": "bob"}).json["allowed"]
    assert client.post("/v1/check", {"rule": "many", "key": "cid", "cost": 5}).json["allowed"]
    assert not client.post("/v1/check", {"rule": "many", "key": "cid", "cost": 1}).json["allowed"]


def test_keys_of_several_parts(client: Client) -> None:
    first = client.post("/v1/check", {"rule": "pair", "key": ["a", "b/c"]}).json
    other = client.post("/v1/check", {"rule": "pair", "key": ["a/b", "c"]}).json
    again = client.post("/v1/check", {"resource": "pair", "user": "a", "device": "b/c"}).json
    assert [first["allowed"], other["allowed"], again["allowed"]] == [True, True, False]
    raw = client.post("/v1/check", {"rule": "pair", "key": [{"b": "YQ=="}, "b/c"]}).json
    assert not raw["allowed"]  # the same as its text


def test_plans(client: Client) -> None:
    call = {"rule": "plans", "key": "pia", "attributes": {"plan": "pro"}}
    assert [client.post("/v1/check", call).json["allowed"] for _ in range(5)].count(True) == 4


@pytest.mark.parametrize("wish", ["query", "prefer"])
def test_status_by_choice(client: Client, wish: str) -> None:
    key = f"choice-{wish}"
    client.post("/v1/check", {"rule": "api", "key": key, "cost": 3})
    path, headers = "/v1/check", {}
    if wish == "query":
        path += "?status=429"
    else:
        headers = {"prefer": "respond-async, status=429"}
    refused = client.post(path, {"rule": "api", "key": key}, **headers)
    assert refused.status == 429
    assert refused.json["rule"] == "api"
    assert int(refused.headers["retry-after"]) >= 1
    assert client.post(path, {"rule": "api", "key": f"{key}2"}, **headers).status == 200
    assert client.post("/v1/check", {"rule": "api", "key": key}).status == 200


def test_lists(client: Client) -> None:
    denied = client.post("/v1/check", {"path": "/closed", "user": "mallory"}).json
    assert (denied["allowed"], denied["rule"], denied["status"]) == (False, "closed", 403)
    assert denied["retry_after"] is None
    free = client.post("/v1/check", {"path": "/free", "user": "mallory"}).json
    assert free["allowed"]
    assert free["exempt"] == "free"
    assert free["decisions"] == []
    nothing = client.post("/v1/check", {"path": "/elsewhere"}).json
    assert nothing["allowed"]
    assert nothing["remaining"] is None


def test_batch(client: Client) -> None:
    calls: list[Any] = [{"rule": "api", "key": "batch"}] * 4
    calls += [{"path": "/api/x", "user": "batch2"}, {"rule": "busy", "key": "batch"}]
    found = client.post("/v1/check/batch", {"calls": calls}).json["verdicts"]
    assert [each["allowed"] for each in found] == [True, True, True, False, True, True]
    token = found[-1]["permit"]["token"]
    assert client.send("DELETE", f"/v1/permits/{token}").json == {"released": True}
    assert client.post("/v1/check/batch", {"calls": []}).json == {"verdicts": []}


def test_peek_takes_nothing(client: Client) -> None:
    for _ in range(5):
        assert client.get("/v1/peek?rule=api&key=peek").json["remaining"] == 3
        assert client.post("/v1/peek", {"rule": "api", "key": "peek"}).json["allowed"]
    client.post("/v1/check", {"rule": "api", "key": "peek", "cost": 3})
    assert not client.get("/v1/peek?path=/api/x&user=peek").json["allowed"]
    assert client.get("/v1/peek?rule=pair&key=x&key=y").json["remaining"] == 1


def test_reset_is_for_administrators(client: Client, admin: Client) -> None:
    call = {"rule": "api", "key": "reset"}
    client.post("/v1/check", {**call, "cost": 3})
    assert not client.post("/v1/check", call).json["allowed"]
    assert client.post("/v1/reset", call).status == 404
    assert admin.post("/v1/reset", call).json == {"reset": ["api#0"]}
    assert client.post("/v1/check", call).json["allowed"]
    assert admin.post("/v1/reset", {"path": "/api/x", "user": "reset"}).json["reset"]
    assert admin.post("/v1/reset", {"rule": "api"}).json["field"] == "key"


# -- what is held


def test_permits(client: Client) -> None:
    first = client.post("/v1/permits", {"rule": "busy", "key": "p", "ttl": 60}).json
    assert first["allowed"]
    assert first["permit"]["lease"] == 60
    second = client.post("/v1/permits?status=429", {"rule": "busy", "key": "p"})
    assert second.status == 503  # as the rule says
    assert "permit" not in second.json
    path = f"/v1/permits/{first['permit']['token']}"
    renewed = client.send("PUT", path, {"ttl": 120}).json["permit"]
    assert renewed["lease"] == 120
    path = f"/v1/permits/{renewed['token']}"
    assert client.send("DELETE", path).json == {"released": True}
    for answer in (client.send("DELETE", path), client.send("PUT", path, {})):
        assert answer.status == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["field"] == "token"
    assert client.post("/v1/permits", {"rule": "busy", "key": "p"}).json["allowed"]


def test_a_lease_runs_out(client: Client) -> None:
    held = client.post("/v1/permits", {"rule": "busy", "key": "short", "ttl": 0.05}).json["permit"]
    threading.Event().wait(0.1)
    path = f"/v1/permits/{held['token']}"
    assert client.send("PUT", path, {}).status == 404
    again = client.post("/v1/check", {"rule": "busy", "key": "short"}).json
    assert again["allowed"]
    assert again["permit"]["lease"] == 30
    assert client.send("DELETE", path).status == 404  # a stale release gives nothing back
    assert not client.post("/v1/check", {"rule": "busy", "key": "short"}).json["allowed"]


def test_only_failures_count(client: Client) -> None:
    def attempt(outcome: str) -> bool:
        found = client.post("/v1/check", {"path": "/login", "user": "eve"}).json
        if not found["allowed"]:
            return False
        assert found["permit"]["lease"] is None
        path = f"/v1/permits/{found['permit']['token']}?outcome={outcome}"
        assert client.send("DELETE", path).status == 200
        assert client.send("DELETE", path).status == 404  # a success counts once
        return True

    assert all(attempt("success") for _ in range(5))
    assert [attempt("failure") for _ in range(3)] == [True, True, False]


def test_reserve_and_settle(client: Client) -> None:
    def left() -> int:
        found: int = client.get("/v1/peek?rule=tokens&key=r").json["remaining"]
        return found

    call = {"rule": "tokens", "key": "r", "cost": 900}
    held = client.post("/v1/reserve", call).json["reservation"]
    assert held["lease"] == 300
    assert left() == 100
    assert not client.post("/v1/reserve", call).json["allowed"]
    assert client.post("/v1/settle", {"token": held["token"], "cost": 742}).json == {
        "settled": True
    }
    assert left() == 258
    assert client.post("/v1/settle", {"token": held["token"], "cost": 742}).status == 404
    assert left() == 258
    held = client.post("/v1/reserve", {**call, "cost": 200, "ttl": 0.05}).json["reservation"]
    assert left() == 58
    threading.Event().wait(0.1)
    assert left() == 258  # abandoned, it came back


# -- what is wrong


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/v1/check", b"{", 400, None),
        ("/v1/check", b"[1]", 422, "the body"),
        ("/v1/check", b"\xff", 400, None),
        ("/v1/check", b"[" * 5000, 400, None),
        ("/v1/check", {"user": 7}, 422, "user"),
        ("/v1/check", {"usr": "ann"}, 422, "usr"),
        ("/v1/check", {"ip": "nowhere"}, 422, "ip"),
        ("/v1/check", {"headers": {"a": 1}}, 422, "headers.a"),
        ("/v1/check", {"rule": "none"}, 422, "rule"),
        ("/v1/check", {"key": "ann"}, 422, "rule"),
        ("/v1/check", {"rule": "api", "key": 7}, 422, "key"),
        ("/v1/check", {"rule": "api", "key": "x", "cost": -1}, 422, "cost"),
        ("/v1/check", {"rule": "api", "key": "x", "cost": True}, 422, "cost"),
        ("/v1/check?status=500", {"rule": "api", "key": "x"}, 422, "status"),
        ("/v1/check/batch", {"calls": [{}, {"user": 1}]}, 422, "calls[1].user"),
        ("/v1/check/batch", {}, 422, "calls"),
        ("/v1/permits", {"rule": "busy", "ttl": 0}, 422, "ttl"),
        ("/v1/reserve", {"rule": "tokens"}, 422, "cost"),
        ("/v1/settle", {"token": "x", "cost": 1}, 404, "token"),
        ("/v1/settle", {"cost": 1}, 422, "token"),
        ("/v1/decide", {"groups": [[{"op": "take"}]]}, 422, "groups[0][0].limit"),
        ("/v1/decide", {"groups": [[{"limit": "nonsense"}]]}, 422, "groups[0][0].limit"),
        ("/v1/decide", {"groups": [[{"limit": "1/s", "op": "x"}]]}, 422, "groups[0][0].op"),
        (
            "/v1/decide",
            {"groups": [[{"limit": "1/s", "op": "reset", "least": 0}]]},
            422,
            "groups[0][0].least",
        ),
    ],
)
def test_problems(client: Client, path: str, body: Any, status: int, field: str | None) -> None:
    answer = client.post(path, body)
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status
    assert answer.json.get("field") == field


def test_what_is_not_there(client: Client) -> None:
    assert client.get("/nowhere").status == 404
    answer = client.get("/v1/check")
    assert answer.status == 405
    assert answer.headers["allow"] == "POST"
    assert client.send("POST", "/v1/check", b"a=1", content_type="text/plain").status == 415
    client.close()
    assert client.get("/v1/permits/xyz").status == 405
    assert client.send("DELETE", "/v1/permits/%C3%A4").status == 404
    assert client.send("DELETE", "/v1/permits/x?outcome=perhaps").json["field"] == "outcome"


# -- the store itself


def test_decide(client: Client) -> None:
    ask = {"op": "take", "limit": "2/30d fixed-window", "key": "d", "space": "lib"}
    groups = [[ask], [ask], [ask], [{**ask, "op": "check", "key": ["t", {"b": "/w=="}]}]]
    found = client.post("/v1/decide", {"groups": groups}).json["groups"]
    assert [group[0]["wait"] for group in found] == [0, 0, -1, 0]
    assert found[3][0]["glance"] is True
    both = [ask, {**ask, "key": "e"}]
    found = client.post("/v1/decide", {"groups": [both]}).json["groups"][0]
    assert [part["wait"] for part in found] == [-1, 0]
    assert found[1]["glance"] is True  # nothing was taken from the other
    place = {"space": "lib", "id": "2/30d fixed-window", "key": "d"}
    assert client.post("/v1/assigned", place).json == {"limit": None}
    own = {"limit": "5/30d fixed-window"}
    assert client.post("/v1/assign", {**place, **own}).json == own
    assert client.post("/v1/assigned", place).json == own
    found = client.post("/v1/decide", {"groups": [[ask]]}).json["groups"][0][0]
    assert found["wait"] == 0
    assert found["own"] == "5/30d fixed-window"
    assert client.post("/v1/assign", {**place, "limit": None}).json == {"limit": None}


def test_a_limiter_through_the_service(running: Running) -> None:
    from headgate import Limiter

    with Limiter(
        "2/30d fixed-window", name="far", store=f"headgate://{running.where['http']}"
    ) as far:
        assert [bool(far.hit("x")) for _ in range(3)] == [True, True, False]
        assert not far.hit("x").degraded


# -- rules, health, numbers


def test_rules_and_health(client: Client) -> None:
    found = client.get("/v1/rules").json
    assert found["status"]["rules"] == len(found["rules"]) == 10
    assert found["status"]["following"]
    assert found["status"]["last_error"] is None
    assert found["rules"][0] == {
        "name": "api", "key": ["user"], "limits": ["3/30d fixed-window"], "status": 429,
    }  # fmt: skip
    assert client.get("/healthz").json == {"status": "ok"}
    assert client.get("/readyz").json == {"ready": True, "store": "there", "rules": 10}
    assert client.get("/openapi.json").json["openapi"] == "3.1.0"


def test_metrics(client: Client, admin: Client) -> None:
    client.post("/v1/check", {"rule": "api", "key": "metrics", "cost": 3})
    client.post("/v1/check", {"rule": "api", "key": "metrics"})
    text = admin.get("/metrics").body.decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(lines['headgate_decisions_total{rule="api",result="refused"}']) >= 1
    assert 'headgate_decisions_total{rule="closed",result="allowed"}' in lines
    assert lines["headgate_workers"] == "1"
    assert "metrics" not in "".join(lines)  # a key is no label
    kind = admin.get("/metrics", accept="application/openmetrics-text").headers["content-type"]
    assert kind.startswith("application/openmetrics-text")


def test_permits_in_use(running: Running, client: Client, admin: Client) -> None:
    def in_use() -> str:
        text = admin.get("/metrics").body.decode()
        name = 'headgate_permits_in_use{rule="busy"} '
        return next((x.removeprefix(name) for x in text.splitlines() if x.startswith(name)), "0")

    before = int(in_use())
    held = client.post("/v1/permits", {"rule": "busy", "key": "gauge", "ttl": 60}).json["permit"]
    assert int(in_use()) == before + 1
    client.send("DELETE", f"/v1/permits/{held['token']}")
    assert int(in_use()) == before


def test_events(admin: Client, client: Client) -> None:
    admin.connection.request("GET", "/events")
    answer = admin.connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    seen = set()
    client.post("/v1/check", {"rule": "api", "key": "events"})
    while "second" not in seen:
        line = answer.fp.readline()
        if line.startswith(b"event: "):
            seen.add(line.split()[1].decode())
    assert seen >= {"history", "keys", "second"}
    answer.close()


def test_status_and_top(admin: Client) -> None:
    found = admin.get("/status").json
    assert found["workers"][0]["ready"]
    assert found["workers"][0]["starts"] == 1
    assert found["rules"]["rules"] == 10
    assert "all" in admin.get("/top").json
