"""Whom a rule counts, by what limits and at what cost."""

from __future__ import annotations

from typing import Any

import pytest
from rules_tools import FIVE, HUNDRED, IP, TEN, USER, only, rule, snapshot

from headgate.facts import Facts
from headgate.rules.model import Cost, KeyPart, Plans


def test_parameters_of_the_path_fill_a_key() -> None:
    rules = snapshot(
        rule(
            paths=("/users/{id}/orders", "/orders/of/{id}", "/files/{id:path}"),
            key=(KeyPart("param", "id"),),
        )
    )
    for path, key in {
        "/users/7/orders": "7",
        "/orders/of/8": "8",
        "/files/a/b": "a/b",
    }.items():
        assert only(rules.match(Facts(path=path))).key == key
    given = Facts(path="/users/7/orders", params={"id": "07"})
    assert only(rules.match(given)).key == "07"
    routed = Facts(path="/elsewhere", route="/orders/of/{id}", params={"id": "9"})
    assert only(rules.match(routed)).key == "9"
    assert not rules.match(Facts(path="/elsewhere", route="/orders/of/{id}")).bounds


def test_the_route_as_a_key_falls_back_to_the_pattern() -> None:
    rules = snapshot(rule(paths=("/a/{id}", "/b/*"), key=(KeyPart("route"),)))
    assert only(rules.match(Facts(path="/a/1"))).key == "/a/{id}"
    assert only(rules.match(Facts(path="/b/1"))).key == "/b/*"
    assert only(rules.match(Facts(path="/b/1", route="/b/{x}"))).key == "/b/{x}"


def test_parts_of_a_key() -> None:
    facts = Facts(
        method="GET", path="/a", host="Shop.test:80", resource="db", route="/{x}", ip="192.0.2.1",
        user="anna", device="d1", api_key="k1", origin="web", headers={"x-tenant": "t"},
        params={"x": "a"}, args={"sku": 7, "0": b"raw", "flag": True}, attributes={"plan": "pro"},
        entries=(("kind", "read"),),
    )  # fmt: skip
    parts: dict[tuple[str, str], str | bytes] = {
        ("ip", ""): "192.0.2.1", ("user", ""): "anna", ("device", ""): "d1",
        ("api_key", ""): "k1", ("host", ""): "shop.test", ("route", ""): "/{x}",
        ("path", ""): "/a", ("method", ""): "GET", ("origin", ""): "web",
        ("resource", ""): "db", ("header", "X-Tenant"): "t", ("param", "x"): "a",
        ("arg", "sku"): "7", ("arg", "0"): b"raw", ("arg", "flag"): "true",
        ("attribute", "plan"): "pro", ("entry", "kind"): "read",
    }  # fmt: skip
    for (source, name), key in parts.items():
        assert only(snapshot(rule(key=(KeyPart(source, name),))).match(facts)).key == key
    several = tuple(KeyPart(*part) for part in parts)
    for count in (2, 3, len(several)):
        bound = only(snapshot(rule(key=several[:count])).match(facts))
        assert bound.key == tuple(parts.values())[:count]
    assert only(snapshot(rule()).match(facts)).key == ""
    for part in several:
        there = part in (IP, USER)
        for parts_of_key in ((part,), (part, part), (IP, part, USER)):
            matched = snapshot(rule(key=parts_of_key)).match(Facts(ip="192.0.2.1", user="u"))
            assert len(matched.bounds) == there


def test_addresses_of_version_six_count_by_their_network() -> None:
    rules = snapshot(rule(key=(IP,)))
    keys = {only(rules.match(Facts(ip=ip))).key for ip in ("2001:db8::1", "2001:db8::2:3")}
    assert len(keys) == 1
    assert only(rules.match(Facts(ip="2001:db8:0:1::1"))).key not in keys
    assert only(rules.match(Facts(ip="::ffff:192.0.2.1"))).key == "192.0.2.1"


def test_limits_are_filed_under_the_rule_and_plans_keep_the_ids() -> None:
    plans = Plans("plan", {"pro": (HUNDRED, TEN), "free": (), "1": (TEN,)})
    rules = snapshot(rule("api", limits=(FIVE, TEN), key=(USER,), plans=plans))

    def limits(**attributes: Any) -> list[tuple[str, int]]:
        matched = rules.match(Facts(user="u", attributes=attributes))
        return [(each.id, each.amount) for bound in matched.bounds for each in bound.limits]

    assert limits() == limits(plan="unknown") == [("api#0", 5), ("api#1", 10)]
    assert limits(plan="pro") == [("api#0", 100), ("api#1", 10)]
    assert limits(plan=1) == [("api#0", 10)]
    assert limits(plan="free") == []  # a plan without limits


def test_hot_values_have_limits_of_their_own() -> None:
    rules = snapshot(
        rule("sku", key=(USER, KeyPart("arg", "sku")), hot={"42": (HUNDRED,)}),
        rule("one", key=(KeyPart("arg", "sku"),), hot={"42": (TEN,)}),
    )

    def amounts(sku: Any) -> list[int]:
        matched = rules.match(Facts(user="42", args={"sku": sku}))
        assert [bound.limits[0].id for bound in matched.bounds] == ["sku#0", "one#0"]
        return [bound.limits[0].amount for bound in matched.bounds]

    assert amounts("42") == amounts(42) == [100, 10]
    assert amounts("7") == [5, 5]


@pytest.mark.parametrize(
    ("cost", "facts", "expected"),
    [
        (Cost(default=3), Facts(), 3),
        (Cost("header", "X-Cost"), Facts(headers={"x-cost": "7"}), 7),
        (Cost("header", "X-Cost"), Facts(headers={"x-cost": " 007 "}), 7),
        (Cost("header", "X-Cost", per=4), Facts(headers={"x-cost": "9"}), 3),
        (Cost("header", "X-Cost", default=2), Facts(), 2),
        *[
            (Cost("header", "X-Cost", default=2), Facts(headers={"x-cost": text}), 2)
            for text in ("", "-1", "+1", "1.5", "1e3", "nan", "٣", "²", "1_0", "0x1", "1 2")
        ],
        (Cost("header", "X-Cost"), Facts(headers={"x-cost": "9" * 100_000}), 2**53 - 1),
        (Cost("header", "X-Cost", most=10), Facts(headers={"x-cost": "11"}), 10),
        (Cost("header", "X-Cost"), Facts(headers={"x-cost": "0"}), 0),
        (Cost("header", "X-Cost", least=1), Facts(headers={"x-cost": "0"}), 1),
        (Cost("header", "X-Cost", least=3), Facts(headers={"x-cost": "2"}), 3),
        (Cost("header", "X-Cost", least=3), Facts(headers={"x-cost": "4"}), 4),
        (Cost("size", per=1024), Facts(size=1025), 2),
        (Cost("size", per=1024), Facts(size=1024), 1),
        (Cost("size", default=5), Facts(), 5),
        (Cost("arg", "n"), Facts(args={"n": 12}), 12),
        (Cost("arg", "n"), Facts(args={"n": "12"}), 12),
        (Cost("arg", "n"), Facts(args={"n": True}), 1),
        (Cost("arg", "n"), Facts(args={"n": -3}), 1),
        (Cost("arg", "n"), Facts(args={"n": 2.5}), 1),
        (Cost("arg", "n"), Facts(args={"n": 2**70}), 2**53 - 1),
    ],
)
def test_costs(cost: Cost, facts: Facts, expected: int) -> None:
    assert only(snapshot(rule(cost=cost)).match(facts)).cost == expected
