"""A real Envoy in front of a real upstream, asking our service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from envoy_tools import Asking, Process, Upstream, get, proxy, served, typed

from servers import until

TREE = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: all
    rate_limit: {unit: day, requests_per_unit: 40}
  - key: tokens
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
"""
OWN = """
version: 1
defaults: {headers: draft-11}
rules:
  - name: per-user
    match: {entries: {user: "*"}}
    key: ["entry:user"]
    limit: 2/day fixed-window
"""
LIMITS: list[dict[str, Any]] = [
    {"actions": [{"request_headers": {"header_name": f"x-{key}", "descriptor_key": key}}]}
    for key in ("user", "all", "watched")
]
TOKENS: dict[str, Any] = {
    "actions": [{"request_headers": {"header_name": "x-tokens", "descriptor_key": "tokens"}}]
}
LIMITS += [
    {**TOKENS, "hits_addend": {"number": 0}},
    {**TOKENS, "hits_addend": {"number": 4}, "apply_on_stream_done": True},
]
DENY = {
    "fallback_rate_limit": {"blanket_rule": "DENY_ALL"},
    "expired_assignment_behavior_timeout": "60s",
}


def limiting(**more: Any) -> dict[str, Any]:
    """Envoy's filter that asks for every request."""
    service = {"grpc_service": {"envoy_grpc": {"cluster_name": "service"}}}
    return {
        "name": "envoy.filters.http.ratelimit",
        "typed_config": typed(
            "envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            domain="shop",
            timeout="30s",
            rate_limit_service={**service, "transport_api_version": "V3"},
            **more,
        ),
    }


@contextmanager
def fronted(upstream: Upstream, service: Process, filter_: Any) -> Iterator[int]:
    limits = LIMITS if "quota" not in filter_["name"] else ()
    front = Process(proxy(upstream.port, service.port, filter_, limits), {})
    try:
        yield front.port
    finally:
        front.kill()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.shutdown()
    server.server_close()


def test_limits_headers_shadow_and_failing_open(upstream: Upstream) -> None:
    filter_ = limiting(enable_x_ratelimit_headers="DRAFT_VERSION_03")
    with served(TREE) as service, fronted(upstream, service, filter_) as port:
        found = [get(port, x_user="anna") for _ in range(5)]
        assert [status for status, _, _ in found] == [200, 200, 200, 429, 429]
        assert upstream.count == 3
        headers = found[0][1]
        assert headers["x-ratelimit-limit"].startswith("3, 3;w=86400")
        assert headers["x-ratelimit-remaining"] == "2"
        assert 0 < int(headers["x-ratelimit-reset"]) <= 86_400
        assert int(found[3][1]["retry-after"]) >= 1
        assert "x-envoy-ratelimited" in found[3][1]

        with ThreadPoolExecutor(8) as pool:  # exact through the front
            codes = list(pool.map(lambda _: get(port, x_all="1")[0], range(60)))
        assert codes.count(200) == 40
        assert codes.count(429) == 20

        assert [get(port, x_watched="1")[0] for _ in range(3)] == [200] * 3
        assert get(port, x_watched="1", x_user="anna")[0] == 429
        assert get(port, x_user="other")[0] == 200
        assert get(port)[0] == 200

        with closing(Asking(service.port)) as asking:

            def left() -> int:
                look = {"entries": {"tokens": "1"}, "hits_addend": {"value": 0}}
                return int(asking.limit("shop", look).statuses[0].limit_remaining)

            for after in (6, 2, 0):  # looked at on the way in, counted on the way out: 4, 8, 12
                assert get(port, x_tokens="1")[0] == 200
                until(lambda after=after: left() == after)  # type: ignore[misc] # of this turn
            assert [get(port, x_tokens="1")[0] for _ in range(2)] == [429, 429]

        service.kill()
        assert [get(port, x_user="anna")[0] for _ in range(2)] == [200, 200]


def test_failing_closed_and_headers_of_ours(upstream: Upstream) -> None:
    filter_ = limiting(failure_mode_deny=True)
    with served(OWN) as service, fronted(upstream, service, filter_) as port:
        found = [get(port, x_user="anna") for _ in range(3)]
        assert [status for status, _, _ in found] == [200, 200, 429]
        assert found[0][1]["ratelimit-policy"] == '"per-user";q=2;w=86400'
        assert found[0][1]["ratelimit"].startswith('"per-user";r=1;t=')
        assert found[2][1]["ratelimit"].startswith('"per-user";r=0;t=')
        service.kill()
        assert get(port, x_user="berta")[0] == 500
        assert upstream.count == 2


def quota(behaviour: str) -> dict[str, Any]:
    """Envoy's filter that decides by itself, and only reports."""
    header = typed("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", header_name="x-user")
    settings = typed(
        "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings",
        bucket_id_builder={
            "bucket_id_builder": {
                "user": {"custom_value": {"name": "user", "typed_config": header}}
            }
        },
        reporting_interval="0.5s",
        no_assignment_behavior={"fallback_rate_limit": {"blanket_rule": behaviour}},
        expired_assignment_behavior=DENY,
    )
    action = {"name": "rate_limit_quota", "typed_config": settings}
    return {
        "name": "envoy.filters.http.rate_limit_quota",
        "typed_config": typed(
            "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig",
            rlqs_server={"envoy_grpc": {"cluster_name": "service"}},
            domain="shop",
            bucket_matchers={"on_no_match": {"action": action}},
        ),
    }


QUOTA = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 20}
"""


def test_quotas(upstream: Upstream) -> None:
    """Two Envoys decide by themselves, and together they let no more pass than the limit."""
    with (
        served(QUOTA) as service,
        fronted(upstream, service, quota("DENY_ALL")) as one,
        fronted(upstream, service, quota("DENY_ALL")) as other,
    ):
        end = time.monotonic() + 60
        codes: list[int] = []
        while codes.count(200) < 20 and time.monotonic() < end:
            codes += [get(port, x_user="anna")[0] for port in (one, other)]
            time.sleep(0.02)
        assert codes.count(200) == 20
        late = time.monotonic() + 1.2  # two more reports
        while time.monotonic() < late:
            codes += [get(port, x_user="anna")[0] for port in (one, other)]
            time.sleep(0.05)
        assert codes.count(200) == 20
        assert set(codes) == {200, 429}
        assert upstream.count == 20


def test_quotas_go_on_without_us(upstream: Upstream) -> None:
    """What was handed out can still be used when the service is gone."""
    with served(QUOTA) as service, fronted(upstream, service, quota("ALLOW_ALL")) as port:
        assert get(port, x_user="anna")[0] == 200  # before anything is assigned
        time.sleep(2)  # it has been assigned some by then
        service.kill()
        assert [get(port, x_user="anna")[0] for _ in range(10)].count(200) == 2
