"""The API's token where gateways ask: forward-auth has a header for it, gRPC its metadata."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy_tools import LIMITS, QUOTAS, Asking, Process, Request, Response, Upstream, proxy, typed
from envoy_tools import get as get_through
from nginx_site import Site
from service_forms import FORMS, in_form
from service_tools import Answer, Running, serving

TOKEN = "a-token-of-enough-letters"
RULES = """
version: 1
rules:
  - {name: shop, match: {path: /shop}, key: [ip], limit: 3/day fixed-window}
  - {name: secret, match: {path: /secret}, key: ["header:x-headgate-token"], limit: 1/day}
  - {name: users, match: {entries: {user: "*"}}, key: ["entry:user"], limit: 3/day fixed-window}
"""
CHECK, WATCH = "grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch"
OK, OVER = 1, 2
BY_NGINX = {"x_original_method": "GET", "x_forwarded_for": "192.0.2.7"}
BY_TRAEFIK = {"x_forwarded_method": "GET", "x_forwarded_for": "192.0.2.8"}


@pytest.fixture(scope="module", params=FORMS)
def running(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("form")
    (folder / "token").write_text(TOKEN + "\n")
    flags = ("--api-token-file", str(folder / "token"), "--grpc", "127.0.0.1:0")
    with pytest.MonkeyPatch.context() as patch:
        in_form(patch, folder, request.param)
        with serving(RULES, *flags) as made:
            yield made


@pytest.fixture
def asked(running: Running) -> Iterator[Asking]:
    made = Asking(int(running.where["grpc"].rpartition(":")[2]))
    with contextlib.closing(made):
        yield made


def nginx(running: Running, path: str = "/shop", **headers: str) -> Answer:
    with contextlib.closing(running.client()) as client:
        return client.get("/auth/nginx", x_original_uri=path, **BY_NGINX, **headers)


def traefik(running: Running, path: str = "/shop", **headers: str) -> Answer:
    with contextlib.closing(running.client()) as client:
        return client.get("/auth/traefik", x_forwarded_uri=path, **BY_TRAEFIK, **headers)


@pytest.mark.parametrize(("ask", "passes"), [(nginx, 204), (traefik, 200)])
def test_gateways_show_it_in_a_header_of_its_own(
    running: Running, ask: Callable[..., Answer], passes: int
) -> None:
    for given in (
        {}, {"x_headgate_token": ""}, {"x_headgate_token": "a-token-of-other-letters"},
        {"x_headgate_token": f"Bearer {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}"},  # that is the client's, whoever it is
    ):  # fmt: skip
        answer = ask(running, **given)
        assert answer.status == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["field"] == "X-Headgate-Token"
        assert answer.headers["www-authenticate"].startswith("Headgate-Token ")
    right = {"x_headgate_token": TOKEN, "authorization": "Basic YTpi"}
    assert [ask(running, **right).status for _ in range(3)] == [passes] * 3
    assert ask(running, **right).status in (403, 429)
    assert [ask(running, "/secret", **right).status for _ in range(3)] == [passes] * 3


def test_health_is_open_and_the_api_is_not(running: Running) -> None:
    with contextlib.closing(running.client()) as client:
        assert client.get("/healthz").status == 200
        assert client.get("/readyz").json["ready"]
        assert client.get("/v1/rules", x_headgate_token=TOKEN).status == 401


def failed(asked: Asking, method: str, data: bytes, **more: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        asked.raw(method, data, **more)
    error: Any = caught.value
    return error.code()


def question(user: str) -> bytes:
    entries = [{"key": "user", "value": user}]
    data: bytes = Request(domain="x", descriptors=[{"entries": entries}]).SerializeToString()
    return data


def test_grpc_wants_it_as_metadata(asked: Asking) -> None:
    method, data = f"{LIMITS}/ShouldRateLimit", question("ann")
    wanted = grpc.StatusCode.UNAUTHENTICATED
    assert failed(asked, method, data) is wanted
    for given in (TOKEN, "Bearer ", "Bearer a-token-of-other-letters", f"Basic {TOKEN}"):
        assert failed(asked, method, data, metadata=[("authorization", given)]) is wanted
    assert failed(asked, method, data, metadata=[("x-headgate-token", TOKEN)]) is wanted
    codes = []
    for scheme in ("Bearer", "bearer", "Bearer", "Bearer"):
        right = [("authorization", f"{scheme} {TOKEN}")]
        codes.append(Response.FromString(asked.raw(method, data, metadata=right)).overall_code)
    assert codes == [OK, OK, OK, OVER]
    assert asked.raw(CHECK, b"") == b"\x08\x01"


def test_streams_want_it_too(request: pytest.FixtureRequest, asked: Asking) -> None:
    if "grpcio" in request.node.name:
        pytest.skip("grpcio serves no streams here")
    quotas = asked.channel.stream_stream(f"/{QUOTAS}/StreamRateLimitQuotas")
    with pytest.raises(grpc.RpcError) as caught:
        next(quotas(iter([b""]), timeout=20))
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    watching = asked.channel.unary_stream(f"/{WATCH}")(b"", timeout=20)
    assert next(watching) == b"\x08\x01"
    watching.cancel()


def test_the_log_says_so_but_not_what_it_is(running: Running, asked: Asking) -> None:
    nginx(running)
    failed(asked, f"{LIMITS}/ShouldRateLimit", question("ann"))
    said = [line["message"] for line in running.lines() if "without the API's token" in str(line)]
    assert any("X-Headgate-Token" in line for line in said)
    assert any("initial_metadata" in line for line in said)
    assert TOKEN not in running.log()


def test_a_real_envoy_sends_it(running: Running) -> None:
    upstream = Upstream()
    header = {"header_name": "x-user", "descriptor_key": "user"}
    limits = [{"actions": [{"request_headers": header}]}]

    def statuses(user: str, **more: Any) -> list[int]:
        service = {"grpc_service": {"envoy_grpc": {"cluster_name": "service"}, **more}}
        told = typed(
            "envoy.extensions.filters.http.ratelimit.v3.RateLimit", domain="x", timeout="30s",
            failure_mode_deny=True,
            rate_limit_service={**service, "transport_api_version": "V3"},
        )  # fmt: skip
        filter_ = {"name": "envoy.filters.http.ratelimit", "typed_config": told}
        port = int(running.where["grpc"].rpartition(":")[2])
        front = Process(proxy(upstream.port, port, filter_, limits), {})
        try:
            return [get_through(front.port, x_user=user)[0] for _ in range(4)]
        finally:
            front.kill()

    try:
        token = {"key": "authorization", "value": f"Bearer {TOKEN}"}
        assert statuses("envoy", initial_metadata=[token]) == [200, 200, 200, 429]
        assert statuses("other") == [500] * 4
    finally:
        upstream.shutdown()
        upstream.server_close()


def test_a_real_nginx_sends_it(running: Running, tmp_path: Path) -> None:
    """The shipped configuration, with the line that it has for this."""
    port = int(running.where["http"].rpartition(":")[2])

    def statuses(token: str) -> list[int]:
        folder = tmp_path / (token or "none")
        folder.mkdir()
        site = Site(folder, RULES, port)
        file = folder / "headgate.conf"
        shipped = file.read_text()
        line = '# proxy_set_header X-Headgate-Token "TOKEN";'
        assert line in shipped
        if token:
            shipped = shipped.replace(line, line.removeprefix("# ").replace("TOKEN", token))
        file.write_text(shipped)
        try:
            with site.nginx.serving(site.port):
                theirs = {"X-Headgate-Token": TOKEN} if token else {}  # a client's own is replaced
                return [site.client.get("/shop", headers=theirs).status_code for _ in range(4)]
        finally:
            site.close()

    assert statuses("") == [401] * 4
    assert statuses("another-token-of-letters") == [401] * 4
    assert statuses(TOKEN) == [200, 200, 200, 429]
