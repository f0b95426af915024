"""The values everybody shares: limits and their text, keys, clocks."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headgate import Limit, LimitSyntaxError, ManualClock, SystemClock
from headgate.keys import canonical, encode

READS = {
    "100/minute": "100/minute",
    "100 per minute": "100/minute",
    "100 / minute": "100/minute",
    "100 /minute": "100/minute",
    "1_000/min": "1000/minute",
    "50/10s": "50/10s",
    "50 per 10 seconds": "50/10s",
    "1/30min": "1/30min",
    "10MiB/second": "10MiB/second",
    "1500kB/second": "1500000B/second",
    "20 concurrent": "20 concurrent",
    "20 concurrent soft 10%": "20 concurrent soft 10%",
    "100/minute token-bucket burst 20 initial 0 refill 100ms":
        "100/minute token-bucket burst 20 initial 0 refill 100ms",
    "100/minute initial 0 refill 100ms burst 20 token-bucket":
        "100/minute token-bucket burst 20 initial 0 refill 100ms",
    "10/second gcra burst 5": "10/second gcra burst 5",
    "10/second burst 5": "10/second token-bucket burst 5",
    "10/second debt": "10/second token-bucket debt",
    "500/hour sliding-window cells 60": "500/hour cells 60",
    "500/hour cells 60": "500/hour cells 60",
    "5/second sliding-log": "5/second sliding-log",
    "10/second leaky-bucket queue 5 delay 2": "10/second leaky-bucket queue 5 delay 2",
    "10/second leaky-bucket burst 5 delay 2": "10/second leaky-bucket queue 5 delay 2",
    "10/second queue 5 nodelay": "10/second leaky-bucket queue 5 nodelay",
    "50/10s even": "50/10s even",
    "1/day fixed-window tz Asia/Shanghai": "1/day fixed-window tz Asia/Shanghai",
    "1/day tz Asia/Shanghai": "1/day fixed-window tz Asia/Shanghai",
    "100/month": "100/month fixed-window",
    "100/year tz Europe/Berlin": "100/year fixed-window tz Europe/Berlin",
    "3/hour fixed-window anchor 2026-01-01T00:30Z": "3/hour fixed-window anchor 2026-01-01T00:30Z",
    "3/hour anchor 2026-01-01T01:30+01:00": "3/hour fixed-window anchor 2026-01-01T00:30Z",
    "1/30min fixed-window first-hit": "1/30min fixed-window first-hit",
    "100/second warm-up 10s cold 3": "100/second warm-up 10s cold 3",
    "100/second warm-up 10s": "100/second warm-up 10s cold 3",
    "100/minute soft 10%": "100/minute soft 10%",
    "100/minute elastic 50%": "100/minute elastic 50%",
    "100/minute lease": "100/minute lease",
    "100/minute name burst": "100/minute name burst",
    "7/0.5s": "7/500ms",
    "7/90s": "7/90s",
    "7/24h": "7/day",
    "7/3us": "7/3us",
}  # fmt: skip

# A text, where it goes wrong, and what the error says.
ERRORS = [
    ("", 0, "the text ends where a limit"),
    ("   ", 3, "the text ends where a limit"),
    ("abc", 0, "expected a limit such as '100/minute'"),
    ("-5/s", 0, "an amount is at least 1"),
    ("0/s", 0, "amount is a whole number from 1"),
    ("1.5/s", 0, "write 1.5/second as 3/2s"),
    ("10", 2, "the text ends where '/', 'per' or 'concurrent' was expected"),
    ("10 apples", 3, "expected '/', 'per' or 'concurrent', not 'apples'"),
    ("10/foo", 3, "'foo' is not a time"),
    ("10 per", 6, "the text ends where a time"),
    ("10/0s", 3, "a time is at least a microsecond"),
    ("10/0.0000001s", 3, "not a whole number of microseconds"),
    ("10/2 months", 3, "a calendar window is one month"),
    ("10XB/s", 2, "unknown unit 'XB'"),
    ("10/second fast", 10, "unknown word 'fast'"),
    ("10/second burst", 15, "the text ends where a whole number after 'burst'"),
    ("10/second burst x", 16, "expected a whole number, not 'x'"),
    ("10/second burst 5 burst 6", 24, "burst is given twice"),
    ("10/second gcra even", 15, "algorithm is given twice"),
    ("10/second tz UTC gcra", 13, "tz belongs to fixed-window, not to gcra"),
    ("10/second even burst 5", 21, "burst belongs to token-bucket or gcra"),
    ("10/second gcra burst 0", 21, "burst is a whole number from 1"),
    ("5/s initial 9", 12, "initial 9 is more than the bucket holds (5)"),
    ("5/s queue 3 delay 4", 18, "delay 4 is more than the queue holds (3)"),
    ("5/s nodelay", 4, "add queue N"),
    ("5/s queue 3 delay 1 nodelay", 18, "exclude each other"),
    ("5/s burst 3 queue 4", 18, "burst and queue exclude each other"),
    ("5/day tz Nowhere/X", 9, "unknown time zone 'Nowhere/X'"),
    ("5/2d tz UTC", 2, "a calendar window is one"),
    ("5/hour anchor noon", 14, "not an instant"),
    ("5/hour anchor 2026-01-01T00:30", 14, "an anchor needs Z or an offset"),
    ("5/hour anchor 2026-01-01T00:30Z first-hit", 14, "one start"),
    ("5/month anchor 2026-01-01T00:30Z", 15, "one start"),
    ("5/month first-hit", 8, "one start"),
    ("5/month cells 3", 14, "cells belongs to sliding-window, not to fixed-window"),
    ("5/second warm-up", 16, "the text ends where a time"),
    ("5/second cold 3", 14, "warm-up needs a time"),
    ("5/second soft 10", 14, "expected a percentage such as '10%'"),
    ("5/second soft 99999%", 14, "soft is a percentage up to 10000"),
    ("5 concurrent burst 3", 19, "burst belongs to"),
    ("9007199254740992/s", 0, "from 1 to 2**53 - 1"),
    ("99999999999999999999/s", 0, "a number is less than 2**53"),
    ("1000000000000/day", 0, "too large for its window"),
    ("5/3us cells 4", 12, "4 cells do not fit into 3 ticks"),
]  # fmt: skip


class TestLimitText:
    @pytest.mark.parametrize(("text", "canonical"), READS.items())
    def test_reads_and_writes(self, text: str, canonical: str) -> None:
        limit = Limit.parse(text)
        assert str(limit) == canonical
        assert Limit.parse(str(limit)) == limit
        assert Limit(text) == limit
        assert eval(repr(limit)) == limit
        assert pickle.loads(pickle.dumps(limit)) == limit
        assert copy.deepcopy(limit) == limit

    @pytest.mark.parametrize(("text", "position", "problem"), ERRORS)
    def test_errors_name_the_position(self, text: str, position: int, problem: str) -> None:
        with pytest.raises(LimitSyntaxError) as error:
            Limit.parse(text)
        assert problem in error.value.problem
        assert error.value.position == position, str(error.value)
        assert f"(at position {position})" in str(error.value)

    def test_the_error_points_at_the_place(self) -> None:
        with pytest.raises(LimitSyntaxError) as error:
            Limit.parse("10/second burst x")
        assert str(error.value).splitlines() == [
            "expected a whole number, not 'x' (at position 16)",
            "    10/second burst x",
            "                    ^",
        ]


class TestLimit:
    def test_values(self) -> None:
        assert Limit(100, per=60, algorithm="token-bucket", burst=20) == Limit(
            "100/minute burst 20"
        )
        assert Limit(5, per=timedelta(seconds=10)) == Limit(5, "10s") == Limit(5, per=10.0)
        assert Limit(5, per="day", tz="Asia/Shanghai") == Limit("5/day tz Asia/Shanghai")
        when = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
        assert Limit(3, 3600, anchor=when) == Limit("3/hour anchor 2026-01-01T00:30Z")
        assert Limit(20) == Limit("20 concurrent")
        assert Limit("5/minute", name="api").id == "api"

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"amount": True, "per": 1}, "amount is a whole number, not bool"),
            ({"amount": 1.5, "per": 1}, "amount is a whole number, not float"),
            ({"amount": 5, "per": True}, "a time is a number of seconds"),
            ({"amount": 5, "per": float("nan")}, "a time is finite"),
            ({"amount": 5, "per": -1}, "a time is at least a microsecond"),
            ({"amount": 5, "per": 1, "burst": "3"}, "burst is a whole number, not str"),
            ({"amount": 5, "per": 1, "algorithm": "magic"}, "unknown algorithm 'magic'"),
            ({"amount": 5, "algorithm": "gcra"}, "gcra needs a window"),
            ({"amount": 5, "per": 1, "algorithm": "concurrency"}, "has no window"),
            ({"amount": 5, "per": 1, "tz": 8}, "tz is the name of a time zone"),
            ({"amount": 5, "per": 1, "anchor": 8}, "anchor is a datetime"),
            ({"amount": 5, "per": 1, "name": "a b"}, "a name has at least one character"),
            ({"amount": 5, "per": 1, "name": 8}, "a limit's name is a str"),
            ({"amount": 5, "per": 1, "unit": "kg"}, "a unit is '' or 'B'"),
            ({"amount": "5/s", "burst": 3}, "holds its options already"),
            ({"amount": "5/s", "per": 3}, "holds its options already"),
            ({"amount": None, "per": 3}, "amount is a whole number, not NoneType"),
        ],
    )
    def test_bad_values(self, arguments: dict[str, Any], error: str) -> None:
        with pytest.raises((TypeError, ValueError), match=error.replace("(", r"\(")):
            Limit(**arguments)

    def test_immutable(self) -> None:
        limit = Limit("5/s")
        with pytest.raises(AttributeError, match="does not change"):
            limit.amount = 6
        with pytest.raises(AttributeError, match="does not change"):
            del limit.amount
        assert limit.amount == 5

    def test_the_tick_is_the_finest_that_stays_exact(self) -> None:
        assert Limit("999983/second").tick == 1
        assert Limit("1000000/day").tick == 1_000
        assert Limit("1000000000/day").tick == 1_000_000
        for text in ("1000000/day", "1000000000/day", "999983/second burst 4000000"):
            limit = Limit(text)
            most, window = max(limit.amount, limit.capacity), limit.window // limit.tick
            assert 2 * most * window < 2**53

    def test_an_override_keeps_the_id(self) -> None:
        own = Limit("9/minute gcra").named("5/minute token-bucket")
        assert (own.id, str(own)) == ("5/minute token-bucket", "9/minute gcra")
        assert pickle.loads(pickle.dumps(own)) == own


class TestKeys:
    def test_one_form_each(self) -> None:
        keys: list[Any] = [
            "a", "b", "", "ab", "a\x00b", ("a",), ("a", "b"), ("ab",), (), ("",), ("", ""),
            ("a", ""),
            b"\xff", b"\xff\x01", b"\xff\x00\xff", ("1:a",), "1:a", ("a", "b/c"), ("a/b", "c"),
            "\udcff", ("\udcff",), "ü", ("ü",),
        ]  # fmt: skip
        assert len({encode(key) for key in keys}) == len(keys)
        assert len({canonical(key) for key in keys}) == len(keys)

    def test_text_is_its_utf_8(self) -> None:
        for text in ("a", "ü", "漢字", "🚦", "\udcff"):
            raw = text.encode("utf-8", "surrogatepass")
            assert canonical(text) == canonical(raw)
            assert canonical((text, "x")) == canonical((raw, b"x"))

    def test_a_subclass_of_str_is_its_text(self) -> None:
        class Name(str):
            __slots__ = ()

        assert canonical(Name("a")) == "a"
        assert type(canonical(Name("ü"))) is str

    @pytest.mark.parametrize("key", [42, None, 1.5, ["a"], ("a", 42), (("a",),), bytearray(b"a")])
    def test_bad_keys(self, key: Any) -> None:
        with pytest.raises(TypeError, match="key is a"):
            canonical(key)
        if key == 42:
            with pytest.raises(TypeError, match=r"write str\(42\)"):
                canonical(key)


class TestClocks:
    def test_manual(self) -> None:
        clock, calls = ManualClock(10.5), list[str]()
        clock.call_at(12_000_000, lambda: calls.append("b"))
        clock.call_at(11_000_000, lambda: calls.append("a"))
        off = clock.call_at(11_500_000, lambda: calls.append("never"))
        assert clock.next_wakeup() == 11.0
        off.cancel()
        clock.advance(1)
        assert (clock.now(), calls, clock.next_wakeup()) == (11.5, ["a"], 12.0)
        clock.advance(0.000_001)
        assert clock.micros() == 11_500_001
        clock.advance(100)
        assert (calls, clock.next_wakeup()) == (["a", "b"], None)

    def test_manual_keeps_whole_microseconds(self) -> None:
        clock = ManualClock(1_700_000_000)
        for _ in range(1000):
            clock.advance(0.000_001)
        assert clock.micros() == 1_700_000_000_001_000

    def test_many_cancelled_timers_are_forgotten(self) -> None:
        clock = ManualClock()
        for _ in range(10_000):
            clock.call_at(10**12, lambda: None).cancel()
        assert len(clock._timers) < 200

    @pytest.mark.parametrize("step", [-1, float("nan"), float("inf"), "1", None, True])
    def test_bad_steps(self, step: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            ManualClock().advance(step)

    def test_a_clock_does_not_start_before_the_epoch(self) -> None:
        with pytest.raises(ValueError, match="the epoch to the year 2255"):
            ManualClock(-1)

    def test_system(self) -> None:
        clock = SystemClock()
        first, second = clock.micros(), clock.micros()
        assert first <= second
        assert abs(clock.now() - datetime.now(UTC).timestamp()) < 5
