"""Which rules apply to a call: conditions, lists, exemptions, replacements, relations."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from rules_tools import IP, TEN, USER, names, only, rule, snapshot

from headgate import Limit
from headgate.errors import RulesError
from headgate.facts import Facts
from headgate.rules.model import Cost, KeyPart, Lists


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("/login", ["/login"], ["/login/x", "/Login", "/", "", "login"]),
        ("/login/", ["/login"], ["/login/x"]),
        ("/", ["/"], ["/a", ""]),
        ("/api/*", ["/api/x", "/api/x/y"], ["/api", "/apix", "/"]),
        ("/static/**", ["/static", "/static/a", "/static/a/b"], ["/statics", "/"]),
        ("/*", ["/", "/a", "/a/b"], [""]),
        ("**", ["/", "/a", "/a/b"], [""]),
        ("/users/{id}/orders", ["/users/7/orders"], ["/users/orders", "/users/7/orders/1"]),
        ("/users/*/orders", ["/users/7/orders"], ["/users/7/8/orders", "/users//orders"]),
        ("/{page}", ["/x"], ["/", "/x/y"]),
        ("/files/{name:path}", ["/files/a", "/files/a/b"], ["/files"]),
        ("/users/<int:id>", ["/users/<int:id>"], ["/users/7"]),
        ("/a*b", ["/a*b"], ["/axb"]),
    ],
)
def test_paths(pattern: str, yes: list[str], no: list[str]) -> None:
    indexed = snapshot(rule(paths=(pattern,)))
    # Filed by the resource, so that the path is asked and not looked up.
    asked = snapshot(*[rule(f"r{n}", paths=(pattern,), resources=(f"{n}",)) for n in range(20)])
    for path in yes + no:
        found = len(indexed.match(Facts(path=path)).bounds)
        assert found == (path in yes), path
        assert len(asked.match(Facts(path=path, resource="3")).bounds) == found, path


def test_a_route_is_matched_as_the_pattern_that_it_is() -> None:
    for pattern in ("/users/{id}", "/users/<int:id>", "users/<int:id>/", "^users/([0-9]+)$"):
        found = snapshot(rule(paths=(pattern,))).match(Facts(path="/x", route=pattern))
        assert names(found) == ["r"]
    both = snapshot(rule(paths=("/users/{id}",))).match(Facts(path="/users/7", route="/users/{id}"))
    assert names(both) == ["r"]


@pytest.mark.parametrize("pattern", ["/a/**/b", "/{x:path}/b", "/{x}/{x}"])
def test_patterns_that_mean_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(RulesError) as caught:
        snapshot(rule("odd", paths=(pattern,), line=7), source="rules.yaml")
    assert str(caught.value).startswith("rules.yaml:7: rule 'odd': ")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("example.com", ["example.com", "EXAMPLE.com:8080", "example.com."], ["a.example.com"]),
        ("*.Example.com", ["a.example.com", "a.b.example.com:1"], ["example.com", ".example.com"]),
        ("[::1]", ["[::1]", "[::1]:80"], ["::1"]),
    ],
)
def test_hosts(pattern: str, yes: list[str], no: list[str]) -> None:
    indexed = snapshot(rule(hosts=(pattern,)))
    asked = snapshot(*[rule(f"r{n}", hosts=(pattern,), resources=(f"{n}",)) for n in range(20)])
    for host in [*yes, *no, "", ".", "x." * 50_000]:
        assert len(indexed.match(Facts(host=host)).bounds) == (host in yes), host
        assert len(asked.match(Facts(host=host, resource="3")).bounds) == (host in yes), host


def test_conditions_of_every_kind() -> None:
    facts = Facts(
        method="POST", resource="db", origin="shop", chain=("web", "cart"),
        headers={"x-tenant": "a"}, attributes={"role": ["dev", "admin"], "level": 3, "vip": True,
        "groups": []},
        entries=(("kind", "read"), ("kind", "write")),
    )  # fmt: skip
    yes: list[dict[str, Any]] = [
        {},
        {"methods": frozenset({"post"})},
        {"resources": ("db", "queue")},
        {"origins": ("shop",)},
        {"through": ("web",)},
        {"headers": {"X-Tenant": ("a", "b")}},
        {"headers": {"X-Tenant": ("*",)}},
        {"attributes": {"role": ("admin",)}},
        {"attributes": {"level": ("3",), "vip": ("true",)}},
        {"attributes": {"role": ("*",)}},
        {"entries": {"kind": ("write",)}},
        {"entries": {"kind": ("*",)}},
    ]
    no: list[dict[str, Any]] = [
        {"methods": frozenset({"GET"})},
        {"resources": ("queue",)},
        {"origins": ("crm",)},
        {"through": ("db",)},
        {"headers": {"X-Tenant": ("A",)}},
        {"headers": {"x-other": ("*",)}},
        {"attributes": {"role": ("root",)}},
        {"attributes": {"plan": ("*",)}},
        {"attributes": {"groups": ("*",)}},
        {"entries": {"kind": ("delete",)}},
        {"entries": {"other": ("*",)}},
        {"origins": ("shop",), "resources": ("queue",)},
    ]
    for each in yes:
        assert names(snapshot(rule(**each)).match(facts)) == ["r"], each
    for each in no:
        assert names(snapshot(rule(**each)).match(facts)) == [], each
    everything = [rule(f"r{n}", **each) for n, each in enumerate(yes + no)]
    assert names(snapshot(*everything).match(facts)) == [f"r{n}" for n in range(len(yes))]


def test_all_rules_that_match_apply_in_the_order_of_the_file() -> None:
    rules = snapshot(
        rule("three", resources=("x",)),
        rule("one", paths=("/a",)),
        rule("all"),
        rule("two", paths=("/*", "/{id}"), methods=frozenset({"GET"})),
        rule("other", paths=("/b",)),
    )
    assert names(rules.match(Facts(method="GET", path="/a", resource="x"))) == [
        "three", "one", "all", "two",
    ]  # fmt: skip
    assert names(rules.match(Facts(path="/c"))) == ["all"]
    assert len(rules) == 5


def test_what_cannot_be_prepared_names_the_rule() -> None:
    for bad in ({"key": (KeyPart("moon"),)}, {"cost": Cost("moon")}):
        with pytest.raises(RulesError, match=r"rule 'bad': .*moon"):
            snapshot(rule("bad", **bad))
    with pytest.raises(RulesError, match="rule 'bad'"):
        snapshot(rule("bad", deny=Lists(networks=("nonsense",))))


def test_exempt_calls_are_limited_by_no_rule() -> None:
    rules = snapshot(
        rule("all"),
        rule("health", paths=("/health",), exempt=True, limits=()),
        rule("banned", deny=Lists(users=("mallory",))),
    )
    assert names(rules.match(Facts(path="/x"))) == ["all", "banned"]
    for user in ("", "mallory"):
        matched = rules.match(Facts(path="/health", user=user))
        assert matched.bounds == ()
        assert matched.exempt is not None
        assert matched.exempt.name == "health"
    denied = rules.match(Facts(path="/x", user="mallory")).denied
    assert denied is not None
    assert denied.name == "banned"


def test_lists_of_a_rule() -> None:
    lists = Lists(networks=("10.0.0.0/8", "2001:db8::/32"), origins=("crm",), users=("root",))
    allowing = snapshot(rule("a", allow=lists), rule("b"))
    denying = snapshot(rule("a", deny=lists, allow=lists), rule("b"))
    shadow = snapshot(rule("a", deny=lists, shadow=True), rule("b"))
    for facts in (
        Facts(ip="10.1.2.3"), Facts(ip="2001:db8:1::1"), Facts(ip="::ffff:10.1.2.3"),
        Facts(origin="crm"), Facts(user="root"),
    ):  # fmt: skip
        assert names(allowing.match(facts)) == ["b"]
        denied = denying.match(facts)
        assert (denied.bounds, denied.denied and denied.denied.name) == ((), "a")
        seen = shadow.match(facts)
        assert (names(seen), seen.denied) == (["b"], None)
        assert [each.name for each in seen.shadowed] == ["a"]
    for facts in (Facts(), Facts(ip="11.0.0.1"), Facts(ip="2001:db9::1"), Facts(ip="unix:")):
        assert names(allowing.match(facts)) == names(denying.match(facts)) == ["a", "b"]


def test_lists_of_the_file_come_first_and_refusal_before_permission() -> None:
    rules = snapshot(
        rule("a", exempt=True),
        allow=Lists(networks=("10.0.0.0/8",), users=("anna",)),
        deny=Lists(networks=("10.6.6.6",)),
    )
    allowed = rules.match(Facts(ip="10.0.0.1"))
    assert allowed.exempt is not None
    assert allowed.exempt.name == "allow"
    denied = rules.match(Facts(ip="10.6.6.6", user="anna"))
    assert (denied.exempt, denied.bounds) == (None, ())
    assert denied.denied is not None
    assert (denied.denied.name, denied.denied.status) == ("deny", 403)
    own = rules.match(Facts(ip="192.0.2.1")).exempt
    assert own is not None
    assert own.name == "a"


def test_a_rule_replaces_others_where_it_applies() -> None:
    rules = snapshot(
        rule("api", paths=("/api/*",), key=(IP,)),
        rule("export", paths=("/api/export",), key=(USER,), replaces=("api",)),
    )
    assert names(rules.match(Facts(path="/api/x", ip="192.0.2.1", user="u"))) == ["api"]
    assert names(rules.match(Facts(path="/api/export", ip="192.0.2.1", user="u"))) == ["export"]
    # Without a user the rule does not apply, so it replaces nothing.
    assert names(rules.match(Facts(path="/api/export", ip="192.0.2.1"))) == ["api"]


def test_what_only_watches_replaces_nothing() -> None:
    busy = {"resource": "db", "limit": TEN}
    for more in ({"shadow": True}, {"busy": busy}):
        rules = snapshot(rule("a"), rule("b", replaces=("a",), **more))
        assert names(rules.match(Facts())) == ["a", "b"]


def test_a_rule_for_while_another_resource_is_busy() -> None:
    limit = Limit.parse("10 concurrent")
    rules = snapshot(
        rule("reports", resources=("reports",), busy={"resource": "db", "limit": limit}),
        rule("pages", paths=("/report",), busy={"resource": "/db/*", "limit": limit}),
    )
    busy = only(rules.match(Facts(resource="reports"))).rule.busy
    assert busy is not None
    assert (busy.limit.id, busy.limit.amount) == ("reports#busy", 10)
    # What counts the other resource's calls is a bound in shadow under the same id and key.
    fed = only(rules.match(Facts(resource="db")))
    assert fed.rule.feeds
    assert fed.rule.rule.shadow
    assert (fed.key, fed.limits, fed.cost) == (busy.key, (busy.limit,), 1)
    assert only(rules.match(Facts(path="/db/x"))).limits[0].id == "pages#busy"
    assert [each.name for each in rules.rules] == ["reports", "pages"]


def test_ten_thousand_rules_stay_small_and_are_not_read_through() -> None:
    count = 10_000
    tracemalloc.start()
    try:
        rules = snapshot(
            *[
                rule(f"r{n}", paths=("/api/*",), headers={"X-Tenant": (f"t{n}",)}, key=(IP,))
                for n in range(count)
            ]
        )
        assert tracemalloc.get_traced_memory()[0] < 30e6
    finally:
        tracemalloc.stop()
    facts = Facts(path="/api/x", headers={"x-tenant": "t77"}, ip="192.0.2.1")
    seen = 0

    def count_calls(frame: Any, event: str, arg: Any) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    sys.setprofile(count_calls)
    try:
        matched = rules.match(facts)
    finally:
        sys.setprofile(None)
    assert names(matched) == ["r77"]
    assert seen < 60


def test_matching_loads_nothing_that_only_reading_needs() -> None:
    code = (
        "import sys; before = set(sys.modules); import headgate.rules.match; "
        "print(sorted({'yaml', 'asyncio', 'socketserver'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("dimension", "there", "missing"),
    [
        ("methods", {"method": "GET"}, {}),
        ("hosts", {"host": "a.example"}, {}),
        ("resources", {"resource": "db"}, {"path": "/db"}),
        ("origins", {"origin": "shop"}, {}),
        ("through", {"resource": "db", "chain": ("web",)}, {"resource": "db"}),
    ],
)
def test_a_star_is_any_that_is_there(
    dimension: str, there: dict[str, Any], missing: dict[str, Any]
) -> None:
    given: dict[str, Any] = {dimension: frozenset("*") if dimension == "methods" else ("*",)}
    rules = snapshot(rule("star", **given), *(rule(f"r{n}", paths=(f"/{n}",)) for n in range(20)))
    assert names(rules.match(Facts(**there))) == ["star"]
    assert names(rules.match(Facts(**missing))) == []


def test_a_star_in_a_list_is_everybody_with_a_name() -> None:
    rules = snapshot(rule("all"), deny=Lists(origins=("*",)), allow=Lists(users=("*",)))
    assert rules.match(Facts(origin="shop", user="ann")).denied is not None
    assert rules.match(Facts(user="ann")).exempt is not None
    assert names(rules.match(Facts())) == ["all"]
