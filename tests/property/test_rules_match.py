"""Matching by the index is matching by reading every rule: nothing is missed, nothing added."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headgate import Limit
from headgate.facts import Facts
from headgate.rules.match import Snapshot
from headgate.rules.model import Lists, Match, Rule, RuleSet

LIMIT = Limit.parse("5/minute")

# --- The naive matcher: every rule, every condition, as the words say it. ---


def path_matches(pattern: str, path: str) -> bool:
    if not path.startswith("/"):
        return False
    if pattern in ("*", "**", "/*", "/**"):
        return True
    if not pattern.startswith("/"):
        return False
    want = [part for part in pattern.split("/") if part]
    have = path.split("/")[1:] if path != "/" else []
    return segments_match(want, have)


def segments_match(want: list[str], have: list[str]) -> bool:
    if not want:
        return not have
    first = want[0]
    if len(want) == 1 and first == "**":
        return True
    if len(want) == 1 and (first == "*" or first.endswith(":path}")):
        return len(have) >= 1
    if not have:
        return False
    if first == "*" or (first.startswith("{") and first.endswith("}") and first != "{}"):
        return have[0] != "" and segments_match(want[1:], have[1:])
    return first == have[0] and segments_match(want[1:], have[1:])


def host_matches(pattern: str, host: str) -> bool:
    pattern, host = pattern.lower(), host.lower().split(":")[0]
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    return host == pattern


def named_match(wanted: Mapping[str, tuple[str, ...]], given: list[tuple[str, str]]) -> bool:
    return all(
        any(key == name and ("*" in values or value in values) for key, value in given)
        for name, values in wanted.items()
    )


def naive(match: Match, facts: Facts) -> bool:
    attributes = [
        (name, text)
        for name, value in facts.attributes.items()
        for text in (value if isinstance(value, list) else [value])
    ]
    headers = {name.lower(): values for name, values in match.headers.items()}
    return (
        (not match.methods or facts.method in match.methods)
        and (
            not match.paths
            or (facts.route != "" and facts.route in match.paths)
            or any(path_matches(pattern, facts.path) for pattern in match.paths)
        )
        and (not match.hosts or any(host_matches(host, facts.host) for host in match.hosts))
        and (not match.resources or facts.resource in match.resources)
        and (not match.origins or facts.origin in match.origins)
        and (not match.through or bool(set(match.through) & set(facts.chain)))
        and named_match(headers, list(facts.headers.items()))
        and named_match(match.entries, list(facts.entries))
        and named_match(match.attributes, attributes)
    )


# --- Rules and calls from a small world, so that they meet often. ---

words = st.sampled_from(["a", "b", "c"])
names = st.sampled_from(["x", "y"])
pieces = st.sampled_from(["a", "b", "c", "*", "{id}", "{name}", "<int:id>"])
lasts = st.sampled_from(["a", "b", "*", "**", "{id}", "{rest:path}"])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    inner = draw(st.lists(pieces, max_size=3, unique=True))
    last = draw(lasts)
    if last in inner:
        inner.remove(last)
    text = "/" + "/".join([*inner, last])
    return draw(st.sampled_from([text, text, text, text + "/", "/", "**", "b/<int:id>"]))


paths = st.one_of(
    st.lists(words, max_size=4).map(lambda parts: "/" + "/".join(parts)),
    st.sampled_from(["", "/", "*", "/a/", "/a//b"]),
)
hosts = st.sampled_from(["a.test", "*.test", "*.a.test", "B.test"])
some = st.lists(words, max_size=2, unique=True).map(tuple)
values = st.lists(st.sampled_from(["a", "b", "c", "*"]), min_size=1, max_size=2).map(tuple)
wanted = st.dictionaries(names, values, max_size=2)
matches = st.builds(
    Match,
    methods=st.frozensets(st.sampled_from(["GET", "POST"]), max_size=1),
    paths=st.lists(patterns(), max_size=2).map(tuple),
    hosts=st.lists(hosts, max_size=1).map(tuple),
    resources=some,
    headers=st.dictionaries(st.sampled_from(["X", "y"]), values, max_size=2),
    attributes=wanted,
    entries=wanted,
    origins=some,
    through=some,
)
# Most rules have few conditions, else hardly any call would meet one.
nothing = Match()
fields = ("methods", "paths", "hosts", "resources", "headers", "attributes", "entries", "origins")


@st.composite
def sparse(draw: st.DrawFn) -> Match:
    full = draw(matches)
    kept = draw(st.lists(st.sampled_from([*fields, "through"]), max_size=2))
    return Match(**{name: getattr(full, name) for name in kept})


calls = st.builds(
    Facts,
    method=st.sampled_from(["GET", "POST", ""]),
    path=paths,
    host=st.sampled_from(["", "a.test", "b.a.test:80", "B.TEST", ".test", "x.b.test"]),
    resource=st.sampled_from(["", "a", "b"]),
    route=st.one_of(st.just(""), patterns()),
    headers=st.dictionaries(names, words, max_size=2),
    attributes=st.dictionaries(names, st.one_of(words, st.lists(words, max_size=2)), max_size=2),
    entries=st.lists(st.tuples(names, words), max_size=3).map(tuple),
    origin=st.sampled_from(["", "a", "b"]),
    chain=st.lists(words, max_size=3).map(tuple),
)


@given(st.lists(sparse(), max_size=40), st.lists(calls, min_size=1, max_size=10))
def test_the_index_finds_what_reading_every_rule_finds(
    wants: list[Match], asked: list[Facts]
) -> None:
    rules = tuple(Rule(f"r{n}", match, limits=(LIMIT,)) for n, match in enumerate(wants))
    snapshot = Snapshot(RuleSet(rules))
    for facts in asked:
        found = [bound.rule.name for bound in snapshot.match(facts).bounds]
        assert found == [rule.name for rule in rules if naive(rule.match, facts)]


@given(
    st.lists(st.tuples(sparse(), words, words, st.sampled_from(["/*", "/a"])), max_size=15),
    st.lists(calls, min_size=1, max_size=5),
)
def test_crowded_conditions_are_filed_again_without_losing_a_rule(
    wants: list[tuple[Match, str, str, str]], asked: list[Facts]
) -> None:
    # Few different values overfill the buckets of the index, so that it is built several deep.
    many = []
    for match, one, other, path in wants:
        many += [
            match,
            Match(paths=(path,), headers={"x": (one,)}, entries={"y": (other, one)}),
            Match(paths=(path, "/{id}"), resources=(one, other)),
            Match(paths=("/*",), headers={"x": (one, "*")}, attributes={"y": (other,)}),
        ]
    rules = tuple(Rule(f"r{n}", match, limits=(LIMIT,)) for n, match in enumerate(many))
    snapshot = Snapshot(RuleSet(rules))
    for facts in asked:
        found = [bound.rule.name for bound in snapshot.match(facts).bounds]
        assert found == [rule.name for rule in rules if naive(rule.match, facts)]


flags = st.booleans()
lists = st.one_of(st.none(), st.builds(Lists, origins=some))


@st.composite
def special_rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    count = draw(st.integers(1, 6))
    each = []
    for n in range(count):
        others = [f"r{m}" for m in range(count) if m != n]
        each.append(
            Rule(
                f"r{n}",
                Match(paths=tuple(draw(st.lists(st.sampled_from(["/a", "/*"]), max_size=1)))),
                limits=(LIMIT,),
                exempt=draw(st.integers(0, 4)) == 0,
                shadow=draw(flags),
                allow=draw(lists),
                deny=draw(lists),
                replaces=tuple(draw(st.lists(st.sampled_from(others), max_size=1)))
                if others
                else (),
            )
        )
    return tuple(each)


@given(special_rules(), st.sampled_from(["/a", "/b"]), st.sampled_from(["", "a", "b"]))
def test_exempt_denied_and_replaced(rules: tuple[Rule, ...], path: str, origin: str) -> None:
    facts = Facts(path=path, origin=origin)
    matching = [rule for rule in rules if naive(rule.match, facts)]
    refusing = [rule for rule in matching if rule.deny and origin in rule.deny.origins]
    active = [
        rule
        for rule in matching
        if rule not in refusing and not (rule.allow and origin in rule.allow.origins)
    ]
    limiting = [rule for rule in active if not rule.exempt]
    gone = {name for rule in limiting if not rule.shadow for name in rule.replaces}
    exempt = [r for r in active if r.exempt and not r.shadow and r.name not in gone]
    refusing = [rule for rule in refusing if rule.name not in gone]
    denied = [rule for rule in refusing if not rule.shadow]
    matched = Snapshot(RuleSet(rules)).match(facts)
    if exempt:
        assert matched == ((), exempt[0], None, ())
    elif denied:
        assert (matched.bounds, matched.exempt, matched.denied) == ((), None, denied[0])
    else:
        assert (matched.exempt, matched.denied) == (None, None)
        assert list(matched.shadowed) == [rule for rule in refusing if rule.shadow]
        assert [bound.rule.rule for bound in matched.bounds] == [
            rule for rule in limiting if rule.name not in gone
        ]
