"""Rules exported for nginx: what is written, what is left out and why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headgate import Limit
from headgate.cli import main
from headgate.export import Exported, nginx_config
from headgate.export.nginx_limits import Cannot, directive_of
from headgate.rules import read_rules
from headgate.rules.model import Rule, RuleSet


def exported(*rules: dict[str, Any], known: dict[str, str] | None = None, **top: Any) -> Exported:
    text = json.dumps({"version": 1, "rules": list(rules), **top})
    return nginx_config(read_rules(text, name="rules.json"), known=known)


@pytest.mark.parametrize(
    ("limit", "wait", "rate", "words"),
    [
        ("10/second gcra burst 5", 0, "10r/s", " burst=4 nodelay"),
        ("10/second gcra burst 1", 0, "10r/s", ""),
        ("10/second gcra", 0, "10r/s", " burst=9 nodelay"),
        ("10/second token-bucket burst 5", 0, "10r/s", " burst=4 nodelay"),
        ("10/second leaky-bucket", 0, "10r/s", ""),
        ("10/second leaky-bucket burst 5", 0, "10r/s", " burst=5 nodelay"),
        ("10/second leaky-bucket queue 5", 0, "10r/s", ""),
        ("10/second leaky-bucket queue 5", 10, "10r/s", " burst=5"),
        ("10/second leaky-bucket queue 5", 0.3, "10r/s", " burst=3"),
        ("10/second leaky-bucket queue 5 delay 2", 10, "10r/s", " burst=5 delay=2"),
        ("10/second leaky-bucket queue 5 delay 2", 0, "10r/s", " burst=2 nodelay"),
        ("10/second leaky-bucket queue 5 nodelay", 0, "10r/s", " burst=5 nodelay"),
        ("10/second gcra burst 5", 0.2, "10r/s", " burst=6 delay=4"),
        ("50/10s even", 0, "5r/s", ""),
        ("50/10s even", 1, "5r/s", " burst=5"),
        ("10/second gcra burst 4 soft 50%", 0, "15r/s", " burst=5 nodelay"),
        ("90/minute gcra burst 2", 0, "90r/m", " burst=1 nodelay"),
        ("6/minute gcra burst 1", 0, "6r/m", ""),
    ],
)
def test_rates(limit: str, wait: float, rate: str, words: str) -> None:
    found = directive_of(Limit.parse(limit), wait)
    assert (found.module, found.rate, found.words) == ("limit_req", rate, words)
    assert found.note == ""


@pytest.mark.parametrize(
    ("limit", "rate", "told"),
    [
        ("10/minute gcra", "10r/m", "0.166 a second"),
        ("100/minute gcra", "100r/m", "1.666 a second"),
        ("500/hour gcra", "8r/m", "0.133 a second"),
        ("100/7s gcra", "857r/m", "14.283 a second"),
    ],
)
def test_rates_that_nginx_cuts_off(limit: str, rate: str, told: str) -> None:
    found = directive_of(Limit.parse(limit))
    assert found.rate == rate
    assert told in found.note


def test_a_rate_is_never_above_the_limit() -> None:
    for amount in (1, 2, 3, 7, 10, 59, 61, 100, 999, 12345):
        for per in (1, 7, 10, 60):
            limit = Limit(amount, per=per, algorithm="gcra")
            if amount / per < 1 / 60:
                continue
            rate = directive_of(limit).rate
            number, unit = int(rate[:-3]), rate[-3:]
            thousandths = number * 1000 // (60 if unit == "r/m" else 1)
            best = amount * 1000 // per
            assert thousandths * per <= amount * 1000
            assert best - thousandths <= 17, (amount, per, rate)  # a step of a rate per minute


@pytest.mark.parametrize(
    ("limit", "wait", "why"),
    [
        ("100/minute", 0, "no sliding-window, only steady rates such as '100/minute gcra'"),
        ("100/minute fixed-window", 0, "no fixed-window"),
        ("100/minute sliding-log", 0, "no sliding-log"),
        ("1/day fixed-window", 0, "no rate below one a minute"),
        ("1/hour gcra", 0, "no rate below one a minute"),
        ("10/second warm-up 10s", 0, "no warm-up"),
        ("10/second gcra elastic 50%", 0, "elastic"),
        ("10/second debt", 0, "'debt'"),
        ("10/second burst 5 initial 0", 0, "'initial'"),
        ("10/second burst 5 refill 100ms", 0, "'refill'"),
        ("10MiB/second gcra", 0, "not bytes"),
        ("5 concurrent", 1, "cannot wait"),
        ("70000 concurrent", 0, "65,535"),
    ],
)
def test_what_nginx_has_not(limit: str, wait: float, why: str) -> None:
    with pytest.raises(Cannot, match=why.replace("(", r"\(")):
        directive_of(Limit.parse(limit), wait)


def test_connections() -> None:
    assert directive_of(Limit.parse("20 concurrent"))[:3] == ("limit_conn", "", " 20")


GOOD: dict[str, Any] = {"limit": "10/second gcra"}
LEFT_OUT: dict[str, tuple[dict[str, Any], str]] = {
    "plans": ({"plans": {"by": "plan", "pro": "100/second"}}, "no plans"),
    "hot": ({"key": ["ip"], "hot": {"values": {"a": "1/second"}}}, "one limit for all values"),
    "failures": ({"count": "failures"}, "how a request ends"),
    "cost": ({"cost": 5}, "a request is one"),
    "size": ({"cost": {"size": "1KiB"}}, "a request is one"),
    "busy": ({"while": {"resource": "db", "limit": "1/second"}}, "is busy"),
    "user": ({"key": ["user"]}, "know the user .*--known user="),
    "attribute": ({"key": ["attribute:plan"]}, "know the attribute 'plan'"),
    "origin": ({"match": {"origin": "shop"}}, "know the origin"),
    "resource": ({"match": {"resource": "db"}}, "not requests of HTTP"),
    "attributes": ({"match": {"attributes": {"plan": "pro"}}}, "attributes of a user"),
    "route": ({"match": {"path": "<int:id>"}}, "route '<int:id>' of a framework"),
    "encoded": ({"match": {"path": "/a%2Fb"}}, "is encoded"),
    "deny": ({"deny": {"users": ["ann"]}}, "for the whole file"),
    "allow": ({"allow": {"users": ["ann"]}}, "know the user"),
    "header": ({"key": ["header:x_y"]}, "no variable for the header 'x_y'"),
    "apart": ({"key": ["path", "param:a"], "match": {"path": "/{a}"}}, "apart"),
    "nothing": ({"key": ["param:a"], "match": {"path": "/b"}}, "know the param 'a'"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_rules_that_are_left_out(name: str) -> None:
    words, why = LEFT_OUT[name]
    found = exported({"name": "left", **GOOD, **words}, {"name": "good", **GOOD})
    assert found.rules == ("good",)
    ((left, told),) = found.left_out
    assert left == "left"
    assert re.search(why, told), told
    assert f"# not here: rule left: {told}" in found.text
    assert "left" not in found.text.replace(f"rule left: {told}", "")  # no trace of it
    assert "map " not in found.text


def test_replaced_rules_are_left_out() -> None:
    found = exported(
        {"name": "a", **GOOD, "replaces": ["b"]}, {"name": "b", **GOOD}, {"name": "c", **GOOD}
    )
    assert found.rules == ("c",)
    assert dict(found.left_out)["b"] == "rule a stands in for it at times"


def test_shadow_is_for_all_or_none() -> None:
    one, two = {"name": "a", **GOOD, "shadow": True}, {"name": "b", **GOOD}
    mixed = exported(one, two)
    assert mixed.rules == ("b",)
    assert "dry_run" not in mixed.text
    assert "limit_req_dry_run on;" in exported(one).text


def test_an_exemption_that_nginx_cannot_tell_leaves_nothing() -> None:
    exempt = {"name": "staff", "match": {"attributes": {"role": "staff"}}, "exempt": True}
    found = exported(exempt, {"name": "a", **GOOD})
    assert not found.rules
    assert "rule staff exempts calls, and nginx does not know" in dict(found.left_out)["a"]
    assert "limit_req" not in found.text.replace("# ", "").split("not here")[0].split("\n", 2)[2]
    unknown = exported({"name": "a", **GOOD}, allow={"users": ["ann"]})
    assert not unknown.rules


def test_differences() -> None:
    found = exported(
        {"name": "a", **GOOD, "status": 503},
        {"name": "b", **GOOD, "status": 503, "otherwise": {"redirect": "/later"}},
        {"name": "c", "limit": "10/minute gcra"},
        {"name": "d", "limit": "5 concurrent", "log_level": "error"},
        deny={"networks": ["192.0.2.0/24"], "users": ["eve"]},
    )
    assert "limit_req_status 503;" in found.text
    assert "limit_conn_status 429;" in found.text
    assert "limit_conn_log_level error;" in found.text
    assert "deny 192.0.2.0/24;" in found.text
    told = [name for name, _ in found.differs]
    assert told == ["b", "c", "deny", "c"]
    assert found.text.count("# not the same: ") == 4


def test_what_is_known() -> None:
    rule = {"name": "a", **GOOD, "key": ["user"], "match": {"origin": "shop"}}
    known = {"user": "$remote_user", "origin": "$http_x_origin"}
    found = exported(rule, known=known)
    assert '"$remote_user"' in found.text
    assert "map $http_x_origin $headgate_origin" in found.text
    for wrong in ({"user": "remote_user"}, {"plan": "$x"}, {"user": "$a; deny all"}):
        with pytest.raises(ValueError, match=r"user=\$remote_user"):
            exported(rule, known=wrong)


def test_nothing_breaks_out() -> None:
    """Names and texts of a rules file are data in nginx's configuration."""
    rule = Rule("a\n}\nevil on;", limits=(Limit.parse("10/second gcra"),))
    text = nginx_config(RuleSet((rule,), source="x\nevil on;")).text
    assert not [line for line in text.splitlines() if line.startswith(("evil", "}"))]
    header = {"X-Kind": ['a"; evil on; "', "b\\", "$host", "é"]}
    found = exported({"name": "a", **GOOD, "match": {"header": header}})
    assert r'"~^a\\\"\\;\\ evil\\ on\\;\\ \\\"\\z" 1;' in found.text
    assert r'"~^b\\\\\\z" 1;' in found.text
    assert r'"~^\\$host\\z" 1;' in found.text
    assert r'"~^\\xe9\\z" 1;' in found.text


@pytest.mark.parametrize("words", [{"zone_size": "10m;"}, {"zone_size": "0"}, {"prefix": "a b"}])
def test_bad_words(words: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not"):
        nginx_config(RuleSet(), **words)  # type: ignore[arg-type] # all of them are texts


def test_conditions_are_shared() -> None:
    rules = [{"name": f"r{n}", **GOOD, "match": {"path": "/a", "method": "GET"}} for n in range(3)]
    text = exported(*rules).text
    assert text.count("map $uri ") == 1
    assert text.count("map $request_method ") == 1
    assert text.count("limit_req_zone ") == 3


# -- the command


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    found = [{"name": "a", **GOOD}, {"name": "b", "limit": "100/minute"}]
    path.write_text(json.dumps({"version": 1, "rules": found}))
    return path


def test_command(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "nginx", str(rules), "--zone-size", "1m", "--prefix", "hg"]) == 0
    out, err = capsys.readouterr()
    assert 'limit_req_zone "all" zone=hg_a_0:1m rate=10r/s;' in out
    assert err.splitlines() == [
        "left out: rule b: nginx has no sliding-window, only steady rates such as '100/minute gcra'"
    ]
    assert main(["export", "nginx", str(rules), "--strict"]) == 1


def test_command_writes_a_file(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = rules.with_name("limits.conf")
    assert main(["export", "nginx", str(rules), "-o", str(where), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rules"] == ["a"]
    assert told["left_out"][0]["rule"] == "b"
    assert told["text"] == where.read_text()


def test_command_complains(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "nginx", str(rules), "--known", "user"]) == 2
    assert main(["export", "nginx", str(rules) + "x"]) == 2
    rules.write_text('{"version": 1, "rules": [{}, {}]}')
    assert main(["export", "nginx", str(rules)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4
