"""Envoy's ratelimit configurations: loaded as they are, matched as Envoy's own service does."""

from __future__ import annotations

from textwrap import dedent

import pytest

from headgate import Limiter, ManualClock
from headgate.errors import RulesError
from headgate.facts import Facts
from headgate.rules.envoy import EnvoySnapshot, read_envoy

BASIC = """
domain: shop
descriptors:
  # a comment
  - key: message
    value: marketing
    descriptors:
      - key: number
        rate_limit: {unit: day, requests_per_unit: 5}
      - key: number
        value: "0800"
  - key: number
    rate_limit:
      unit: DAY
      requests_per_unit: 100
  - key: path
    value: /api/v1/*
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: path
    value: /api/*
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: path
    value: /api/v1/users
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 4}
  - key: address
    value: 192.0.2.5
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: ldap
    rate_limit: {unlimited: true}
"""


@pytest.fixture(scope="module")
def basic() -> EnvoySnapshot:
    return read_envoy(BASIC, "shop.yaml")


def per_unit(snapshot: EnvoySnapshot, *entries: tuple[str, str]) -> int | None:
    rule = snapshot.match_descriptor("shop", entries)
    return None if rule is None else rule.requests_per_unit


def test_the_most_specific_is_chosen_at_each_level(basic: EnvoySnapshot) -> None:
    assert per_unit(basic, ("path", "/api/v1/users")) == 3  # exact
    assert per_unit(basic, ("path", "/api/v1/other")) == 1  # the first wildcard of the file
    assert per_unit(basic, ("path", "/api/v2")) == 2
    assert per_unit(basic, ("path", "/other")) == 4  # the key alone
    assert per_unit(basic, ("path", "")) == 4


def test_the_order_of_wildcards_is_that_of_the_file() -> None:
    text = "domain: shop\ndescriptors:\n"
    for number, value in enumerate(("a*", "ab*", "*", "abc*"), 1):
        text += f"- {{key: k, value: '{value}', rate_limit: "
        text += f"{{unit: hour, requests_per_unit: {number}}}}}\n"
    snapshot = read_envoy(text)
    assert [per_unit(snapshot, ("k", value)) for value in ("abcd", "ab", "b", "", "*", "ab*")] == [
        1, 1, 3, 3, 3, 2,
    ]  # fmt: skip


def test_a_star_is_a_wildcard_only_at_the_end() -> None:
    snapshot = read_envoy(
        "domain: shop\ndescriptors: "
        "[{key: k, value: 'a*b', rate_limit: {unit: hour, requests_per_unit: 1}}]"
    )
    assert per_unit(snapshot, ("k", "a*b")) == 1
    assert per_unit(snapshot, ("k", "axb")) is None


def test_the_depth_of_the_call_is_that_of_the_rule(basic: EnvoySnapshot) -> None:
    assert per_unit(basic, ("message", "marketing"), ("number", "1")) == 5
    assert per_unit(basic, ("message", "marketing")) is None
    assert per_unit(basic, ("number", "1"), ("more", "x")) is None
    assert per_unit(basic) is None


def test_a_value_without_a_limit_is_exempt(basic: EnvoySnapshot) -> None:
    assert per_unit(basic, ("message", "marketing"), ("number", "0800")) is None


def test_what_was_chosen_is_not_taken_back() -> None:
    snapshot = read_envoy(
        dedent(
            """
            domain: shop
            descriptors:
              - key: a
                value: x
                descriptors:
                  - {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}
              - key: a
                descriptors:
                  - {key: c, rate_limit: {unit: hour, requests_per_unit: 2}}
            """
        )
    )
    assert per_unit(snapshot, ("a", "x"), ("b", "1")) == 1
    assert per_unit(snapshot, ("a", "x"), ("c", "1")) is None  # the bare key is not tried again
    assert per_unit(snapshot, ("a", "y"), ("c", "1")) == 2
    assert per_unit(snapshot, ("c", "1")) is None


def test_other_domains_are_not_limited(basic: EnvoySnapshot) -> None:
    assert basic.match_descriptor("other", [("number", "1")]) is None
    assert basic.match(Facts(domain="other", entries=(("number", "1"),))) == ((), None, None, ())


def test_each_combination_of_values_is_counted_by_itself(basic: EnvoySnapshot) -> None:
    keys = []
    for value in ("1", "2"):
        entries = (("message", "marketing"), ("number", value))
        [bound] = basic.match(Facts(domain="shop", entries=entries)).bounds
        assert bound.rule.name == "shop.message_marketing.number"
        assert [limit.id for limit in bound.limits] == ["shop.message_marketing.number#0"]
        assert bound.cost == 1
        keys.append(bound.key)
    assert keys[0] == ("shop", "message", "marketing", "number", "1")
    assert keys[0] != keys[1]


def test_wildcards_may_share_their_threshold() -> None:
    snapshot = read_envoy(
        dedent(
            """
            domain: shop
            descriptors:
              - key: file
                value: pub/*
                share_threshold: true
                rate_limit: {unit: hour, requests_per_unit: 1}
              - key: file
                value: own/*
                rate_limit: {unit: hour, requests_per_unit: 1}
            """
        )
    )

    def key(value: str) -> object:
        hit = snapshot.find("shop", [("file", value)])
        return hit and hit.key

    assert key("pub/a") == key("pub/b") == ("shop", "file", "pub/*")
    assert key("own/a") != key("own/b")


def test_nothing_passes_at_zero_and_everything_when_unlimited(basic: EnvoySnapshot) -> None:
    refused = basic.match(Facts(domain="shop", entries=(("address", "192.0.2.5"),)))
    assert refused.denied is not None
    assert refused.denied.name == "shop.address_192.0.2.5"
    rule = basic.match_descriptor("shop", [("address", "192.0.2.5")])
    assert rule is not None
    assert rule.refuses
    free = basic.match(Facts(domain="shop", entries=(("ldap", "x"),)))
    assert free.exempt is not None
    assert not free.bounds


def test_shadow_mode() -> None:
    snapshot = read_envoy(
        dedent(
            """
            domain: shop
            descriptors:
              - {key: a, rate_limit: {unit: hour, requests_per_unit: 1}, shadow_mode: true}
              - {key: b, rate_limit: {unit: hour, requests_per_unit: 0}, shadow_mode: true}
            """
        )
    )
    [bound] = snapshot.match(Facts(domain="shop", entries=(("a", "1"),))).bounds
    assert bound.rule.rule.shadow
    zero = snapshot.match(Facts(domain="shop", entries=(("b", "1"),)))
    assert zero.denied is None
    assert [rule.name for rule in zero.shadowed] == ["shop.b"]


def test_quota_mode_counts_and_never_refuses() -> None:
    snapshot = read_envoy(
        "domain: shop\ndescriptors:\n"
        "- {key: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1_000}}\n"
        "- {key: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}\n"
    )
    rule = snapshot.match_descriptor("shop", [("a", "1")])
    assert rule is not None
    assert (rule.quota_mode, rule.shadow_mode, rule.requests_per_unit) == (True, False, 1000)
    [bound] = snapshot.match(Facts(domain="shop", entries=(("a", "1"),))).bounds
    assert bound.rule.rule.shadow
    zero = snapshot.match(Facts(domain="shop", entries=(("b", "1"),)))
    assert zero.denied is None


REPLACES = """
domain: shop
descriptors:
  - key: kind
    value: read
    rate_limit: {name: reads, unit: second, requests_per_unit: 5}
  - key: path
    value: /export
    rate_limit: {replaces: [{name: reads}], unit: second, requests_per_unit: 10}
  - key: path
    value: /health
    rate_limit: {replaces: [{name: reads}], unlimited: true}
  - key: path
    value: /free
    rate_limit: {name: reads, unlimited: true}
"""


def test_a_rule_replaces_others_within_one_request() -> None:
    snapshot = read_envoy(REPLACES)
    reads = [("kind", "read")]

    def met(*paths: str) -> list[int | None]:
        requests = [reads, *([("path", path)] for path in paths)]
        hits = snapshot.match_descriptors("shop", requests)
        return [None if hit is None else hit.rule.requests_per_unit for hit in hits]

    assert met() == [5]
    assert met("/export") == [None, 10]
    assert met("/health") == [None, 0]  # what is unlimited replaces as well
    assert met("/export", "/free") == [None, 10, 0]  # and is not replaced
    assert met("/other") == [5, None]


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("second", "7/second fixed-window"),
        ("Minute", "7/minute fixed-window"),
        ("HOUR", "7/hour fixed-window"),
        ("day", "7/day fixed-window"),
        ("week", "7/week fixed-window tz UTC"),
        ("month", "7/month fixed-window"),
        ("year", "7/year fixed-window"),
    ],
)
def test_units_are_windows_of_the_calendar(unit: str, text: str) -> None:
    snapshot = read_envoy(
        f"domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: {unit}, requests_per_unit: 7}}}}]"
    )
    [rule] = snapshot.rules
    assert str(rule.limit) == text
    assert rule.unit == unit.lower()


def test_a_month_ends_with_the_month() -> None:
    snapshot = read_envoy(
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1}}]"
    )
    limit = snapshot.rules[0].limit
    assert limit is not None
    clock = ManualClock(start=1_706_745_600.0 - 60)  # a minute before February 2024
    limiter = Limiter(limit, clock=clock)
    assert limiter.hit("x")
    assert limiter.hit("x").retry_after == 60


def test_several_domains_together() -> None:
    one = read_envoy("domain: a\ndescriptors: [{key: k, rate_limit: {unlimited: true}}]", "a.yaml")
    other = read_envoy("domain: b\ndescriptors: [{key: k, rate_limit: {unlimited: true}}]", "b")
    joined = EnvoySnapshot.joined([one, other])
    assert joined.domains == ("a", "b")
    assert len(joined) == 2
    assert joined.match_descriptor("b", [("k", "1")]) is other.rules[0]
    with pytest.raises(RulesError, match="'a' is there twice"):
        EnvoySnapshot.joined([one, one])


def test_ten_thousand_wildcards_are_looked_up_not_read_through() -> None:
    lines = [
        f"- {{key: k, value: 'v{n:05}*', rate_limit: {{unit: hour, requests_per_unit: {n + 1}}}}}"
        for n in range(10_000)
    ]
    snapshot = read_envoy("domain: shop\ndescriptors:\n" + "\n".join(lines))
    assert per_unit(snapshot, ("k", "v09999x")) == 10_000
