"""The ASGI middleware, over real HTTP and called directly: answers, callers, what breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asgi_tools import BROWSER, ONE, Served, called, clock, hello, http_scope, rules_text

from headgate import AsyncGate, Facts, ManualClock, MemoryStore
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.rules.sources import FileSource
from servers import free_port, until

LOGIN = '{"name": "login", "match": {"path": "/login"}, "key": ["ip"], "limit": "2/hour"}'


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.close()


class TestAnswers:
    def test_the_start_that_needs_no_file(self, served: Served) -> None:
        app = RateLimitMiddleware(hello, "2/minute", clock=clock())
        with served.client(app) as client:
            first, second, third = (client.get("/") for _ in range(3))
        assert (first.status_code, first.text, first.headers["x-own"]) == (200, "hello", "1")
        assert first.headers["ratelimit-policy"] == '"default";q=2;w=60'
        assert first.headers["ratelimit"] == '"default";r=1;t=60'
        assert second.headers["ratelimit"] == '"default";r=0;t=60'
        assert third.status_code == 429
        assert third.headers["content-type"] == "application/problem+json"
        assert third.headers["ratelimit-policy"] == '"default";q=2;w=60'
        assert int(third.headers["retry-after"]) >= 1
        told = third.json()
        assert told["violated-policies"] == ["default"]
        assert told["status"] == 429
        assert "retry-after" not in first.headers

    def test_time_lets_in_again(self, served: Served) -> None:
        time = clock()
        with served.client(RateLimitMiddleware(hello, "1/minute", clock=time)) as client:
            assert [client.get("/").status_code for _ in range(2)] == [200, 429]
            time.advance(120)
            assert client.get("/").status_code == 200

    def test_browsers_get_a_page_and_others_a_line(self, served: Served) -> None:
        app = RateLimitMiddleware(hello, "1/hour", clock=clock())
        with served.client(app) as client:
            client.get("/")
            page = client.get("/", headers={"accept": BROWSER})
            line = client.get("/", headers={"accept": "text/plain"})
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "<h1>Too many requests</h1>" in page.text
        assert line.text.startswith("Too many requests.")

    def test_a_body_of_ones_own(self, served: Served) -> None:
        app = RateLimitMiddleware(
            hello, "1/hour", clock=clock(),
            body=lambda verdict, accept: (420, "text/x-own", f"not now, {verdict.rule}"),
        )  # fmt: skip
        with served.client(app) as client:
            client.get("/")
            refused = client.get("/")
        assert (refused.status_code, refused.text) == (420, "not now, default")
        assert "retry-after" in refused.headers

    def test_head_and_a_body_that_nobody_reads(self, served: Served) -> None:
        app = RateLimitMiddleware(hello, "1/hour", clock=clock())
        with served.client(app) as client:
            client.get("/")
            assert client.head("/").status_code == 429
            assert client.post("/", content=b"x" * 100_000).status_code == 429

    def test_a_rule_has_its_status_and_its_otherwise(self, served: Served, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        page.write_text("<p>later</p>")
        kinds = {
            "status": '"status": 503',
            "redirect": '"otherwise": {"redirect": "/later"}',
            "page": f'"otherwise": {{"page": "{page}"}}, "status": 503',
            "data": '"otherwise": {"data": {"items": []}}',
            "function": '"otherwise": {"function": "shop:stale"}',
        }
        text = rules_text(
            *(
                f'{{"name": "{name}", "match": {{"path": "/{name}"}}, "limit": "1/hour", {what}}}'
                for name, what in kinds.items()
            )
        )
        functions = {"shop:stale": lambda facts: {"path": facts.path, "old": True}}
        gate = AsyncGate(text, clock=clock(), functions=functions)
        with served.client(RateLimitMiddleware(hello, gate=gate)) as client:
            got = {name: (client.get(f"/{name}"), client.get(f"/{name}"))[1] for name in kinds}
        assert got["status"].status_code == 503
        assert got["redirect"].status_code == 303
        assert got["redirect"].headers["location"] == "/later"
        assert (got["page"].status_code, got["page"].text) == (503, "<p>later</p>")
        assert (got["data"].status_code, got["data"].json()) == (200, {"items": []})
        assert got["function"].json() == {"path": "/function", "old": True}
        assert all("r=0" in answer.headers["ratelimit"] for answer in got.values())

    def test_formats_of_headers(self, served: Served) -> None:
        text = rules_text(LOGIN, defaults='{"headers": "x-ratelimit"}')
        with served.client(RateLimitMiddleware(hello, rules=text, clock=clock())) as client:
            told = client.get("/login").headers
        assert (told["x-ratelimit-limit"], told["x-ratelimit-remaining"]) == ("2", "1")
        assert "ratelimit" not in told

    def test_many_at_once_never_more_than_the_limit(self, served: Served) -> None:
        app = RateLimitMiddleware(hello, "20/hour", clock=clock())
        with served.client(app) as client, ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(lambda _: client.get("/").status_code, range(60)))
        assert codes.count(200) == 20
        assert codes.count(429) == 40


class TestWhoCalls:
    def test_forwarded_for_helps_nobody(self, served: Served) -> None:
        app = RateLimitMiddleware(hello, "1/hour", clock=clock())
        with served.client(app) as client:
            codes = [
                client.get("/", headers={"x-forwarded-for": f"203.0.113.{n}"}).status_code
                for n in range(3)
            ]
        assert codes == [200, 429, 429]

    def test_a_trusted_proxy_is_believed(self, served: Served) -> None:
        app = RateLimitMiddleware(hello, "1/hour", clock=clock(), trusted=["loopback"])
        with served.client(app) as client:
            codes = [
                client.get("/", headers={"x-forwarded-for": f"6.6.6.6, {ip}"}).status_code
                for ip in ("203.0.113.1", "203.0.113.2", "203.0.113.1")
            ]
        assert codes == [200, 200, 429]

    def test_functions_find_out_who_calls(self, served: Served) -> None:
        def user(scope: Any) -> Any:
            return dict(scope["headers"]).get(b"x-user", b"").decode()

        app = RateLimitMiddleware(hello, "1/hour", key="user", user=user, clock=clock())
        with served.client(app) as client:
            codes = [
                client.get("/", headers={"x-user": who} if who else {}).status_code
                for who in ("ann", "bob", "ann", "", "")
            ]
        assert codes == [200, 200, 429, 200, 200]  # a call without a user is not limited by it

    def test_what_is_awaited_is_refused_at_once(self) -> None:
        async def user(scope: Any) -> str:
            return "ann"

        with pytest.raises(TypeError, match="user is a plain function"):
            RateLimitMiddleware(hello, "1/hour", key="user", user=user)

    def test_all_spellings_of_a_path_are_one(self, served: Served) -> None:
        app = RateLimitMiddleware(hello, rules=rules_text(LOGIN), clock=clock())
        with served.client(app):
            paths = (
                "/login",
                "//login",
                "/%6Cogin",
                "/login/",
                "/x/../login",
                "/login%2F",
                "/free",
            )
            codes = [_raw(served, path) for path in paths]
        assert codes == [200, 200, 429, 429, 429, 429, 200]

    def test_exempt_paths_and_shadow(self, served: Served) -> None:
        text = rules_text(
            '{"name": "health", "match": {"path": "/health"}, "exempt": true}',
            '{"name": "all", "key": ["ip"], "limit": "1/hour"}',
            '{"name": "strict", "key": ["ip"], "limit": "1/day", "shadow": true}',
        )
        seen: list[tuple[str, ...]] = []
        gate = AsyncGate(text, clock=clock())
        gate.on_verdict.append(lambda facts, verdict: seen.append(verdict.shadowed))
        with served.client(RateLimitMiddleware(hello, gate=gate)) as client:
            health = [client.get("/health") for _ in range(3)]
            codes = [client.get("/").status_code for _ in range(2)]
        assert {answer.status_code for answer in health} == {200}
        assert "ratelimit" not in health[0].headers
        assert codes == [200, 429]

    def test_a_rule_in_shadow_refuses_nobody_and_is_not_told(self, served: Served) -> None:
        text = rules_text('{"name": "dark", "limit": "1/hour", "shadow": true}')
        seen: list[tuple[str, ...]] = []
        gate = AsyncGate(text, clock=clock())
        gate.on_verdict.append(lambda facts, verdict: seen.append(verdict.shadowed))
        with served.client(RateLimitMiddleware(hello, gate=gate)) as client:
            answers = [client.get("/") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert "ratelimit" not in answers[1].headers
        assert seen == [(), ("dark",)]

    def test_facts_of_a_scope(self) -> None:
        seen: list[Facts] = []
        gate = AsyncGate(rules_text('{"name": "all", "limit": "9/hour"}'), clock=clock())
        gate.on_verdict.append(lambda facts, verdict: seen.append(facts))
        headers = [
            (b"host", b"Shop.Example:8000"), (b"content-length", b"12"),
            (b"x-a", b"1"), (b"X-A", b"\xe9"),
        ]  # fmt: skip
        called(RateLimitMiddleware(hello, gate=gate), http_scope("/a//b%2F/", headers=headers))
        (facts,) = seen
        assert (facts.method, facts.path, facts.host) == ("GET", "/a/b%252F", "shop.example")
        assert (facts.size, facts.headers["x-a"], facts.ip) == (12, "1, é", "192.0.2.7")
        names = [name for name in Facts.__slots__ if not name.startswith("_")]
        plain = {name: getattr(Facts(), name) for name in names}
        unset = {"user", "device", "api_key", "origin", "resource", "route", "params", "args",
                 "attributes", "entries", "domain", "chain", "priority"}  # fmt: skip
        assert all(getattr(facts, name) == plain[name] for name in unset)
        assert all(getattr(facts, name) is not None for name in names)
        with pytest.raises(AttributeError, match="nobody"):
            facts.nobody  # type: ignore[attr-defined] # noqa: B018 # it is not there

    @pytest.mark.parametrize(
        ("client", "ip"),
        [(None, "unix"), (("", 0), "unix"), (("::ffff:192.0.2.9", 1), "192.0.2.9")],
    )
    def test_peers(self, client: Any, ip: str) -> None:
        seen: list[Facts] = []
        gate = AsyncGate(rules_text('{"name": "all", "limit": "9/hour"}'), clock=clock())
        gate.on_verdict.append(lambda facts, verdict: seen.append(facts))
        called(RateLimitMiddleware(hello, gate=gate), http_scope(client=client))
        assert seen[0].ip == ip

    @pytest.mark.parametrize("length", [b"-1", b"1e3", b"\xb2", b"9" * 30, b""])
    def test_a_length_that_is_none(self, length: bytes) -> None:
        rule = '{"name": "size", "limit": "1/hour", "cost": {"size": "1KiB"}}'
        app = RateLimitMiddleware(hello, rules=rules_text(rule), clock=clock())
        scope = http_scope(headers=[(b"content-length", length)])
        assert called(app, scope)[0]["status"] == 200


def _raw(served: Served, path: str) -> int:
    """The status of a path that no client would leave as it is."""
    import socket

    with socket.create_connection(("127.0.0.1", served.port), 10) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int(sock.recv(64).split()[1])


class TestWhenThingsBreak:
    @pytest.mark.parametrize(("on_error", "code"), [("allow", 200), ("deny", 429), ("local", 200)])
    def test_a_store_that_is_not_there(self, served: Served, on_error: str, code: int) -> None:
        rule = f'{{"name": "all", "key": ["ip"], "limit": "9/hour", "on_error": "{on_error}"}}'
        store = f"redis://127.0.0.1:{free_port()}/0"
        app = RateLimitMiddleware(hello, rules=rules_text(rule), store=store)
        with served.client(app) as client:
            assert [client.get("/").status_code for _ in range(3)] == [code] * 3
        served.run(app.gate.close())

    def test_rules_change_while_calls_come(self, served: Served, tmp_path: Path) -> None:
        file = tmp_path / "rules.json"
        file.write_text(rules_text('{"name": "all", "key": ["ip"], "limit": "1/hour"}'))
        gate = AsyncGate(FileSource(file), clock=clock())
        try:
            with served.client(RateLimitMiddleware(hello, gate=gate)) as client:
                assert [client.get("/").status_code for _ in range(2)] == [200, 429]
                file.write_text(rules_text('{"name": "all", "key": ["ip"], "limit": "3/hour"}'))
                until(lambda: client.get("/").status_code == 200)
                gate.reload(rules_text('{"name": "all", "key": ["ip"], "limit": "1/hour"}'))
                assert client.get("/").status_code == 429
        finally:
            asyncio.run(gate.close())

    def test_headers_that_cannot_be_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from headgate.verdict import Verdict

        def broken(self: Verdict) -> Any:
            raise ValueError

        monkeypatch.setattr(Verdict, "raw_headers", broken)
        sent = called(RateLimitMiddleware(hello, "1/hour", clock=clock()), http_scope())
        assert sent[0]["headers"] == [(b"content-type", b"text/plain"), (b"x-own", b"1")]

    def test_a_message_that_is_always_the_same_stays_so(self) -> None:
        start: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}

        async def constant(scope: Any, receive: Any, send: Any) -> None:
            await send(start)
            await send({"type": "http.response.body"})

        for rules in (rules_text(LOGIN.replace("/login", "/")), rules_text(ONE)):
            app = RateLimitMiddleware(constant, rules=rules)
            assert len(called(app, http_scope())[0]["headers"]) == 2
            assert start["headers"] == []

    def test_what_is_no_call_passes(self) -> None:
        seen = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["type"])

        called(RateLimitMiddleware(app, "1/hour"), {"type": "lifespan"})
        assert seen == ["lifespan"]

    @pytest.mark.parametrize(
        "words", [{}, {"rules": "x", "gate": "y"}, {"gate": "no gate"}, {"unheard": 1}]
    )
    def test_wrong_words(self, words: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            RateLimitMiddleware(hello, *(["1/hour"] if "unheard" in words else []), **words)


class TestRawHeaders:
    @pytest.mark.parametrize("form", ["draft-11", "draft-10", "draft-07", "x-ratelimit", "off"])
    @pytest.mark.parametrize(
        "limits",
        ["3/minute", "3/500ms", "3/minute gcra burst 2", "2/day fixed-window", "5/hour sliding-log",
         "3 concurrent", "10MiB/second", "3/minute token-bucket initial 1", "4/10s even",
         "3/minute soft 50%", "9000000000000/second", "2/minute; 5/hour"],
    )  # fmt: skip
    def test_the_short_way_says_what_the_long_one_does(self, limits: str, form: str) -> None:
        time = ManualClock(1_000_000.25)
        several = ", ".join(f'"{limit.strip()}"' for limit in limits.split(";"))
        rule = f'{{"name": "a", "limits": [{several}]}}'
        text = rules_text(rule, defaults=f'{{"headers": "{form}"}}')

        async def main() -> None:
            gate = AsyncGate(text, MemoryStore(clock=time))
            for step in range(6):
                verdict = await gate.check(Facts())
                long = [
                    (name.lower().encode(), value.encode()) for name, value in verdict.headers()
                ]
                assert verdict.raw_headers() == long
                time.advance(0.37 * step)

        asyncio.run(main())
