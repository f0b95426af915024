"""Headers: every format, every kind of limit, and names that are not plain."""

from __future__ import annotations

import pytest

from headgate import Decision, Limit, Limiter, ManualClock
from headgate.headers import FORMATS, MOST, Part, header_pairs, policy_name, retry_seconds


def decision(*limits: str, taken: int = 1, start: float = 1_000_000.5, cost: int = 1) -> Decision:
    """What a limiter answers after so much was taken."""
    limiter = Limiter(*limits, clock=ManualClock(start))
    for _ in range(taken):
        answer = limiter.hit("key", cost=cost)
    return answer


def told(*parts: tuple[str, Decision], format: str = "draft-11", **more: str) -> dict[str, str]:  # noqa: A002
    retry = max(part.retry_after for _, part in parts)
    allowed = all(part.allowed for _, part in parts)
    found = [Part(*part) for part in parts]
    pairs = header_pairs(found, allowed=allowed, retry_after=retry, format=format, **more)
    assert len(dict(pairs)) == len(pairs)
    for name, value in pairs:
        assert name.isascii()
        assert value.isascii()
        assert value.isprintable()
    return dict(pairs)


def test_two_policies() -> None:
    burst = decision("100/minute fixed-window", taken=50, start=1_000_000 - 10)
    daily = decision("1000/day fixed-window", taken=1)
    assert told(("burst", burst), ("daily", daily)) == {
        "RateLimit-Policy": '"burst";q=100;w=60, "daily";q=1000;w=86400',
        "RateLimit": '"burst";r=50;t=30, "daily";r=999;t=36800',
    }


def test_limits_of_one_rule_have_names_of_their_own() -> None:
    both = decision("10/second fixed-window", "500/hour fixed-window name long")
    assert told(("api", both)) == {
        "RateLimit-Policy": '"api#0";q=10;w=1, "api#long";q=500;w=3600',
        "RateLimit": '"api#0";r=9;t=1, "api#long";r=499;t=800',
    }


@pytest.mark.parametrize(
    ("limit", "policy"),
    [
        ("100/minute", "q=100;w=60"),
        ("100/minute sliding-log", "q=100;w=60"),
        ("10/second burst 20", "q=20;w=2"),
        ("10/second gcra burst 25", "q=25;w=3"),
        ("10/second gcra burst 5", "q=5"),
        ("10/second leaky-bucket burst 29", "q=30;w=3"),
        ("7/minute burst 3", "q=3;w=26"),
        ("1/day token-bucket burst 5", "q=5;w=432000"),
        ("50/10s even", "q=50;w=10"),
        ("100/1500ms", "q=100;w=2"),
        ("10/500ms", "q=10"),
        ("100/minute soft 10%", "q=110;w=60"),
        ("10/second burst 20 soft 50%", "q=30;w=2"),
        ("10MiB/second fixed-window", 'q=10485760;qu="content-bytes";w=1'),
        ("1/month", "q=1;w=2678400"),
        ("100/second warm-up 10s cold 3", "q=100;w=1"),
        ("4503599627370495/us fixed-window", "q=999999999999999"),
    ],
)
def test_policies(limit: str, policy: str) -> None:
    assert told(("p", decision(limit)))["RateLimit-Policy"] == f'"p";{policy}'


def test_at_once() -> None:
    limiter = Limiter("2 concurrent", clock=ManualClock(0))
    with limiter.hold("db") as held:
        assert told(("db", held.decision)) == {
            "RateLimit-Policy": '"db";q=2;qu="concurrent-requests"',
            "RateLimit": '"db";r=1',
        }
        for format in ("draft-07", "draft-06", "x-ratelimit"):  # noqa: A001
            assert told(("db", held.decision), format=format) == {}
        with limiter.hold("db"):
            assert "Retry-After" not in told(("db", limiter.peek("db")))


def test_refused() -> None:
    refused = decision("10/minute fixed-window", taken=11, start=59.5 + 60)
    assert told(("api", refused)) == {
        "RateLimit-Policy": '"api";q=10;w=60',
        "RateLimit": '"api";r=0;t=1',
        "Retry-After": "1",
    }


def test_a_refusal_never_names_a_later_time_than_retry_after() -> None:
    refused = decision("100/minute", taken=101)
    assert refused.reset_after > refused.retry_after + 1
    headers = told(("api", refused))
    assert headers["RateLimit"] == f'"api";r=0;t={headers["Retry-After"]}'
    for format in ("draft-07", "draft-06"):  # noqa: A001
        older = told(("api", refused), format=format)
        reset = older.get("RateLimit-Reset") or older["RateLimit"].rpartition("=")[2]
        assert reset == older["Retry-After"]


def test_a_window_is_never_longer_than_the_policy_says() -> None:
    assert decision("100/minute").reset_after > 60
    assert told(("api", decision("100/minute")))["RateLimit"] == '"api";r=99;t=60'


def test_never() -> None:
    refused = decision("10/minute fixed-window", cost=11, start=60)
    assert told(("api", refused)) == {
        "RateLimit-Policy": '"api";q=10;w=60',
        "RateLimit": '"api";r=10;t=0',
    }


def test_partition_keys() -> None:
    headers = told(("peruser", decision("100/minute fixed-window")), partition_key="user-1")
    assert headers["RateLimit-Policy"] == '"peruser";q=100;w=60;pk=:dXNlci0x:'
    assert headers["RateLimit"].endswith(";pk=:dXNlci0x:")
    pairs = header_pairs(
        [Part("p", decision("1/s"))], allowed=True, retry_after=0, partition_key=b"\xff\x00"
    )
    assert dict(pairs)["RateLimit"].endswith(";pk=:/wA=:")


def test_draft_7() -> None:
    parts = [
        ("second", decision("10/second fixed-window")),
        ("hour", decision("500/hour fixed-window", taken=495)),
        ("slow", decision("10/minute burst 10", taken=2)),
        ("short", decision("10/500ms")),
    ]
    assert told(*parts, format="draft-07") == {
        "RateLimit-Policy": "10;w=60, 500;w=3600",
        "RateLimit": "limit=500, remaining=5, reset=800",
    }
    assert told(parts[3], format="draft-07") == {"RateLimit": "limit=10, remaining=9, reset=1"}


def test_draft_6() -> None:
    assert told(("p", decision("100/minute fixed-window")), format="draft-06") == {
        "RateLimit-Limit": "100",
        "RateLimit-Remaining": "99",
        "RateLimit-Reset": "20",
    }


def test_x_ratelimit() -> None:
    assert told(("p", decision("100/minute fixed-window")), format="x-ratelimit") == {
        "X-RateLimit-Limit": "100",
        "X-RateLimit-Remaining": "99",
        "X-RateLimit-Reset": "1000020",
    }
    refused = decision("2/minute sliding-log", taken=3, start=1_000_000.25)
    assert told(("p", refused), format="x-ratelimit") == {
        "X-RateLimit-Limit": "2",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "1000061",
        "Retry-After": "60",
    }


def test_the_one_that_refuses_longest_is_told() -> None:
    first = decision("1/second fixed-window", taken=2)
    second = decision("3/hour fixed-window", taken=4)
    open_one = decision("1/day fixed-window", taken=1)
    headers = told(("a", first), ("b", second), ("c", open_one), format="draft-06")
    assert headers["RateLimit-Limit"] == "3"
    assert headers["Retry-After"] == headers["RateLimit-Reset"] == "800"


def test_off_leaves_retry_after() -> None:
    assert told(("p", decision("1/minute")), format="off") == {}
    refused = decision("1/minute fixed-window", taken=2)
    assert told(("p", refused), format="off") == {"Retry-After": "20"}


def test_no_parts() -> None:
    for format in FORMATS:  # noqa: A001
        assert header_pairs([], allowed=True, retry_after=0, format=format) == []
        denied = header_pairs([], allowed=False, retry_after=float("inf"), format=format)
        assert denied == []


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'draft-99'; known are draft-11, draft-10, draft-07"):
        header_pairs([], allowed=True, retry_after=0, format="draft-99")


def test_draft_10_is_draft_11() -> None:
    part = ("p", decision("10/second burst 20"))
    assert told(part, format="draft-10") == told(part)


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ("größe", '"gr%C3%B6%C3%9Fe"'),
        ("限流", '"%E9%99%90%E6%B5%81"'),
        ("\ud800", '"%ED%A0%80"'),
        ("", '""'),
    ],
)
def test_names(name: str, quoted: str) -> None:
    assert told((name, decision("1/second burst 5")))["RateLimit"].startswith(f"{quoted};r=4")


@pytest.mark.parametrize(
    ("bad", "position"),
    [("a\r\nSet-Cookie: x", 1), ("\0", 0), ("ab\x7f", 2), ("\x85", 0), ("tab\t", 3)],
)
def test_control_characters_are_refused(bad: str, position: int) -> None:
    with pytest.raises(ValueError, match=f"no control characters: .*, position {position}"):
        policy_name(bad)
    with pytest.raises(ValueError, match="no control characters"):
        told((bad, decision("1/second")))


@pytest.mark.parametrize(("wait", "seconds"), [(0.0, 1), (0.001, 1), (1.0, 1), (1.000001, 2)])
def test_whole_seconds(wait: float, seconds: int) -> None:
    assert retry_seconds(wait) == seconds
    pairs = header_pairs([], allowed=False, retry_after=wait)
    assert pairs == [("Retry-After", str(seconds))]


def test_long_lists_are_cut_to_the_tightest() -> None:
    parts = [(f"p{n}", decision("100/minute fixed-window", taken=n)) for n in range(1, 41)]
    headers = told(*parts)
    names = [item.split(";")[0] for item in headers["RateLimit"].split(", ")]
    assert names == [f'"p{n}"' for n in range(41 - MOST, 41)]
    assert headers["RateLimit-Policy"].count(";q=") == MOST


def test_many_names_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate import headers

    monkeypatch.setattr(headers, "KEPT", 10)
    monkeypatch.setattr(headers, "_policies", {})
    one = decision("1/second burst 5")
    for n in range(100):
        assert told((f"name{n}", one))["RateLimit"].startswith(f'"name{n}";r=4')
        assert len(headers._policies) <= 10


def test_a_changed_limit_is_told_under_the_same_name() -> None:
    for text in ("10/second burst 20", "10/second burst 30"):
        limit = Limit(text).named("api#0")
        answer = Limiter(limit, clock=ManualClock(0)).hit("k")
        assert f"q={limit.capacity};" in told(("api", answer))["RateLimit-Policy"]
