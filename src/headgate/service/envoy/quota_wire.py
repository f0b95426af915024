"""The wire of the quota protocol: reports of what was used, and actions for buckets."""

from __future__ import annotations

from typing import NamedTuple

from .wire import BYTES, LOW32, VARINT, fields, message, number, pair, read_duration, utf8, varint

__all__ = ["ALLOW", "DENY", "Report", "abandoned", "blanket", "read_reports", "tokens"]

ALLOW, DENY = 0, 1
FAR = 30 * 86_400
"""Seconds after which a bucket would get one token more: long after its assignment has ended."""


class Report(NamedTuple):
    """What became of the requests of one bucket since the last report."""

    id: bytes
    """The BucketId, as it came."""
    entries: tuple[tuple[str, str], ...]
    """The same by name."""
    elapsed: float
    allowed: int
    denied: int


def read_reports(data: bytes) -> tuple[str, list[Report]]:
    """RateLimitQuotaUsageReports: the domain, and the reports."""
    domain, reports = "", []
    for name, kind, value in fields(data):
        if name == 1 and kind == BYTES:
            domain = utf8(value)
        elif name == 2 and kind == BYTES:
            reports.append(_report(value))
    return domain, [report for report in reports if report.entries]


def _report(data: bytes) -> Report:
    bucket = elapsed = b""
    allowed = denied = 0
    for name, kind, value in fields(data):
        if name == 1 and kind == BYTES:
            bucket += value
        elif name == 2 and kind == BYTES:
            elapsed += value
        elif name == 3 and kind == VARINT:
            allowed = value
        elif name == 4 and kind == VARINT:
            denied = value
    most = 2**53 - 1
    pairs = dict(pair(value) for name, kind, value in fields(bucket) if (name, kind) == (1, BYTES))
    entries = tuple(sorted(pairs.items()))
    return Report(bucket, entries, read_duration(elapsed), min(allowed, most), min(denied, most))


def _assignment(bucket: bytes, ttl: int, strategy: bytes) -> bytes:
    action = message(2, number(1, ttl)) + message(3, strategy)
    return message(1, message(1, bucket) + message(2, action))


def blanket(bucket: bytes, rule: int, ttl: int) -> bytes:
    """Let all pass, or none."""
    return _assignment(bucket, ttl, b"\x08" + varint(rule))  # there even if it is 0


def tokens(bucket: bytes, count: int, ttl: int, fresh: bool) -> bytes:
    """Let so many requests pass: in all, or `fresh` from now on.

    Of an assignment in place of another, Envoy keeps what was left of that. Actions are carried
    out in their order, so that a refusal of everything, which lasts for no time, makes an end.
    """
    data = number(1, min(count, LOW32)) + message(2, number(1, 1)) + message(3, number(1, FAR))
    assignment = _assignment(bucket, ttl, message(3, data))
    return blanket(bucket, DENY, ttl) + assignment if fresh else assignment


def abandoned(bucket: bytes) -> bytes:
    """Forget the bucket."""
    return message(1, message(1, bucket) + message(3, b""))
