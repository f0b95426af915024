"""The hand-written protobuf against the real one, on messages made up and on rubbish."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from headgate.service.envoy import quota_wire, wire
from headgate.service.envoy.reflection import Reflection
from headgate.service.envoy.schema import FILES, SERVICES

POOL = descriptor_pool.DescriptorPool()
for content, _ in FILES.values():
    POOL.Add(descriptor_pb2.FileDescriptorProto.FromString(content))


def kind(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


Request = kind("envoy.service.ratelimit.v3.RateLimitRequest")
Response = kind("envoy.service.ratelimit.v3.RateLimitResponse")
Reports = kind("envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports")
Quotas = kind("envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse")

texts = st.text(st.characters(codec="utf-8"), max_size=12)
uint32s = st.integers(0, 2**32 - 1)
uint64s = st.integers(0, 2**64 - 1)
descriptors = st.fixed_dictionaries(
    {"entries": st.lists(st.fixed_dictionaries({"key": texts, "value": texts}), max_size=4)},
    optional={
        "limit": st.fixed_dictionaries({"requests_per_unit": uint32s, "unit": st.integers(0, 7)}),
        "hits_addend": st.fixed_dictionaries({"value": uint64s}),
        "is_negative_hits": st.booleans(),
    },
)
requests = st.fixed_dictionaries(
    {"domain": texts, "descriptors": st.lists(descriptors, max_size=4), "hits_addend": uint32s}
)


def as_read(message: Any) -> wire.RateLimitRequest:
    """What should have been read, from the real message."""
    found = []
    for each in message.descriptors:
        limit = (each.limit.requests_per_unit, each.limit.unit) if each.HasField("limit") else None
        hits = each.hits_addend.value if each.HasField("hits_addend") else None
        entries = tuple((entry.key, entry.value) for entry in each.entries)
        found.append(wire.Descriptor(entries, limit, hits, each.is_negative_hits))
    return wire.RateLimitRequest(message.domain, tuple(found), message.hits_addend)


@given(requests)
def test_requests(values: dict[str, Any]) -> None:
    message = Request(**values)
    assert wire.read_request(message.SerializeToString()) == as_read(message)


@given(requests, st.binary(max_size=8), st.data())
def test_requests_that_were_damaged(values: dict[str, Any], noise: bytes, data: Any) -> None:
    """Both understand it, and as the same; or neither does."""
    content = bytearray(Request(**values).SerializeToString())
    at = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(at, len(content)))
    content[at:end] = noise
    compare(bytes(content))


@given(st.binary(max_size=60))
def test_rubbish(content: bytes) -> None:
    compare(content)


tags = st.tuples(st.integers(1, 5), st.integers(0, 5)).map(lambda t: bytes((t[0] << 3 | t[1],)))


@given(st.lists(st.tuples(tags, st.binary(max_size=6)), max_size=6))
def test_rubbish_with_tags(parts: list[tuple[bytes, bytes]]) -> None:
    compare(b"".join(tag + bytes((len(rest),)) + rest for tag, rest in parts))


def compare(content: bytes) -> None:
    try:
        message = Request.FromString(content)
    except (DecodeError, UnicodeDecodeError):
        with pytest.raises(wire.WireError):
            wire.read_request(content)
    else:
        assert wire.read_request(content) == as_read(message)


def test_messages_in_pieces_are_put_together() -> None:
    limit = wire.message(2, b"\x08\x05") + wire.message(2, b"\x10\x02")
    content = wire.message(2, limit + wire.message(3, b"") + wire.message(3, b"\x08\x07"))
    compare(content)
    assert wire.read_request(content).descriptors[0].limit == (5, 2)


@pytest.mark.parametrize("content", [b"\x0a\x05ab", b"\x12", b"\x18\xff", b"\x00", b"\x0b", b"\x0c",
                                     b"\x0f", b"\xff" * 11, b"\x0a\x01\xff"])  # fmt: skip
def test_what_is_malformed(content: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.read_request(content)


def test_groups_do_not_exhaust_the_stack() -> None:
    with pytest.raises(wire.WireError, match="deep"):
        wire.read_request(b"\x2b" * 10_000)


@given(st.integers(0, 2**64 - 1))
def test_numbers(value: int) -> None:
    assert wire.read_varint(wire.varint(value), 0, 10) == (value, len(wire.varint(value)))


usages = st.fixed_dictionaries(
    {
        "bucket_id": st.fixed_dictionaries(
            {"bucket": st.dictionaries(texts, texts, min_size=1, max_size=3)}
        ),
        "time_elapsed": st.fixed_dictionaries(
            {"seconds": st.integers(0, 10**9), "nanos": st.integers(0, 10**9 - 1)}
        ),
        "num_requests_allowed": st.integers(0, 2**53 - 1),
        "num_requests_denied": st.integers(0, 2**53 - 1),
    }
)


@given(texts, st.lists(usages, max_size=3))
def test_reports(domain: str, given_: list[dict[str, Any]]) -> None:
    message = Reports(domain=domain, bucket_quota_usages=given_)
    found, reports = quota_wire.read_reports(message.SerializeToString())
    assert found == domain
    for report, usage in zip(reports, message.bucket_quota_usages, strict=True):
        assert dict(report.entries) == dict(usage.bucket_id.bucket)
        assert report.allowed == usage.num_requests_allowed
        assert report.denied == usage.num_requests_denied
        elapsed = usage.time_elapsed
        assert report.elapsed == pytest.approx(elapsed.seconds + elapsed.nanos / 1e9)
        back = Quotas.FromString(quota_wire.blanket(report.id, 0, 3)).bucket_action[0]
        assert back.bucket_id == usage.bucket_id
        assert back.quota_assignment_action.rate_limit_strategy.HasField("blanket_rule")


@given(st.binary(max_size=60))
def test_reports_of_rubbish(content: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        quota_wire.read_reports(content)


def test_actions() -> None:
    bucket = wire.message(1, wire.text(1, "name") + wire.text(2, "web"))
    stop, action = Quotas.FromString(quota_wire.tokens(bucket, 7, 5, fresh=True)).bucket_action
    assert stop.quota_assignment_action.rate_limit_strategy.blanket_rule == 1
    assert len(Quotas.FromString(quota_wire.tokens(bucket, 7, 5, fresh=False)).bucket_action) == 1
    assert dict(action.bucket_id.bucket) == {"name": "web"}
    told = action.quota_assignment_action
    assert told.assignment_time_to_live.seconds == 5
    tokens = told.rate_limit_strategy.token_bucket
    assert (tokens.max_tokens, tokens.tokens_per_fill.value) == (7, 1)
    assert tokens.fill_interval.seconds > 86_400
    other = Quotas.FromString(quota_wire.abandoned(bucket)).bucket_action[0]
    assert other.WhichOneof("bucket_action") == "abandon_action"


def test_reflection_has_all_that_a_service_needs() -> None:
    reflection = Reflection(SERVICES)
    assert b"RateLimitService" in reflection.answer(wire.text(7, "*"))
    for service in SERVICES:
        answer = reflection.answer(wire.text(4, service))
        found = [value for name, _, value in wire.fields(answer) if name == 4]
        pool = descriptor_pool.DescriptorPool()
        files = [descriptor_pb2.FileDescriptorProto.FromString(value)
                 for name, _, value in wire.fields(found[0]) if name == 1]  # fmt: skip
        for file in sorted(files, key=lambda file: list(FILES).index(file.name)):
            pool.Add(file)
        assert pool.FindServiceByName(service).methods
    missing = reflection.answer(wire.text(3, "nothing.proto"))
    assert b"not found" in missing
