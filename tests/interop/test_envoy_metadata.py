"""Rules of `quota_mode`: nobody is refused, and metadata says who would have been."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from envoy_tools import Asking, Process, Upstream, get, proxy, served, typed
from google.protobuf.json_format import MessageToDict

RULES = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: soft
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: none
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: both
    quota_mode: true
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
"""
OK, OVER = 1, 2


@pytest.fixture(scope="module")
def service() -> Iterator[Process]:
    with served(RULES) as process:
        yield process


@pytest.fixture
def asking(service: Process) -> Iterator[Asking]:
    with contextlib.closing(Asking(service.port)) as made:
        yield made


def told(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(answer).get("dynamicMetadata", {})
    return found


def codes(answer: Any) -> list[int]:
    return [answer.overall_code, *(status.code for status in answer.statuses)]


def test_what_is_over_is_told_and_passes(asking: Asking) -> None:
    call = {"user": "a"}, {"soft": "a"}, {"other": "a"}
    first, second = (asking.limit("shop", *call) for _ in range(2))
    assert (codes(first), codes(second)) == ([OK, OK, OK, OK], [OK, OK, OVER, OK])
    known = {
        "domain": "shop",
        "descriptors": [{"entries": [f"{key}=a"]} for key in ("user", "soft", "other")],
        "quotaModeEnabled": True,
    }
    assert told(first) == known
    assert told(second) == {**known, "quotaModeViolations": [1]}
    assert second.statuses[1].current_limit.requests_per_unit == 1
    assert not second.response_headers_to_add
    assert told(asking.limit("shop", *call))["quotaModeViolations"] == [1]
    refused = asking.limit("shop", *call)  # by the rule beside it
    assert codes(refused) == [OVER, OVER, OVER, OK]
    assert told(refused)["quotaModeViolations"] == [1]


def test_numbers_are_told_as_they_came(asking: Asking) -> None:
    own = {"entries": {"soft": "b"}, "hits_addend": {"value": 5}}
    answer = asking.limit("shop", own, {"none": ""}, hits=7)
    assert told(answer)["hitsAddend"] == 7
    assert told(answer)["descriptors"] == [
        {"entries": ["soft=b"], "hitsAddend": 5.0},
        {"entries": ["none="]},
    ]
    assert told(answer)["quotaModeViolations"] == [0, 1]
    assert codes(answer) == [OK, OVER, OVER]


def test_in_shadow_nothing_is_told(asking: Asking) -> None:
    answers = [asking.limit("shop", {"both": "c"}) for _ in range(3)]
    assert [codes(answer) for answer in answers] == [[OK, OK]] * 3
    assert [told(answer) for answer in answers] == [{}] * 3
    assert told(asking.limit("shop", {"user": "c"})) == {}


def test_a_real_envoy_hands_it_on(service: Process) -> None:
    upstream = Upstream()
    header = {"header_name": "x-user", "descriptor_key": "soft"}
    filter_ = typed(
        "envoy.extensions.filters.http.ratelimit.v3.RateLimit", domain="shop", timeout="30s",
        rate_limit_service={
            "grpc_service": {"envoy_grpc": {"cluster_name": "service"}},
            "transport_api_version": "V3",
        },
    )  # fmt: skip
    config = proxy(
        upstream.port, service.port,
        {"name": "envoy.filters.http.ratelimit", "typed_config": filter_},
        [{"actions": [{"request_headers": header}]}],
    )  # fmt: skip
    chain = config["static_resources"]["listeners"][0]["filter_chains"][0]
    value = "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:quotaModeViolations)%"
    chain["filters"][0]["typed_config"]["route_config"]["response_headers_to_add"] = [
        {"header": {"key": "x-over", "value": value}}
    ]
    front = Process(config, {})
    try:
        found = [get(front.port, x_user="envoy") for _ in range(3)]
    finally:
        front.kill()
        upstream.shutdown()
        upstream.server_close()
    assert [status for status, _, _ in found] == [200] * 3
    assert [headers.get("x-over") for _, headers, _ in found] == [None, "[0]", "[0]"]
