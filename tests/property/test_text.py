"""Keys that never meet, and limits as text in both directions."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from headgate import Limit, LimitSyntaxError
from headgate.keys import Key, canonical, encode

parts = st.one_of(
    st.text(max_size=4), st.binary(max_size=4), st.sampled_from(["a", "1:a", b"\xff"])
)
keys: st.SearchStrategy[Key] = st.one_of(parts, st.lists(parts, max_size=3).map(tuple))


def meaning(key: Key) -> object:
    """What makes two keys the same: text and its UTF-8 bytes are, a tuple is of its own."""
    if isinstance(key, tuple):
        return tuple(meaning(part) for part in key)
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key


@given(keys, keys)
@example(("a", "b/c"), ("a/b", "c"))
@example(b"\xff\x01" + b"1:a", ("a",))
@example(b"\xff\x00\xff", b"\xff")
@example("\ud800", b"\xed\xa0\x80")
@example((), "")
def test_keys_are_the_same_only_if_they_mean_the_same(one: Key, other: Key) -> None:
    same = meaning(one) == meaning(other)
    assert (encode(one) == encode(other)) == same
    assert (canonical(one) == canonical(other)) == same


numbers = st.one_of(st.integers(1, 50), st.sampled_from([1000, 2**20, 10**6, 10**9]))
spans = st.one_of(
    st.sampled_from(["second", "minute", "hour", "day", "week"]),
    st.builds("{}{}".format, st.integers(1, 999), st.sampled_from(["us", "ms", "s", "min", "h"])),
)
zones = st.sampled_from(["UTC", "Asia/Shanghai", "Europe/Berlin"])
options = st.lists(
    st.one_of(
        st.builds("burst {}".format, numbers),
        st.builds("initial {}".format, st.integers(0, 5)),
        st.builds("refill {}".format, spans),
        st.builds("cells {}".format, st.integers(1, 60)),
        st.builds("queue {}".format, st.integers(0, 60)),
        st.builds("delay {}".format, st.integers(0, 60)),
        st.builds("tz {}".format, zones),
        st.builds("anchor {}".format, st.datetimes().map(lambda when: when.isoformat() + "Z")),
        st.builds("warm-up {}".format, spans),
        st.builds("cold {}".format, st.integers(1, 9)),
        st.builds("soft {}%".format, st.integers(0, 300)),
        st.builds("elastic {}%".format, st.integers(0, 300)),
        st.builds("name {}".format, st.text("abc-:äß", min_size=1, max_size=5)),
        st.sampled_from(
            [
                "debt", "nodelay", "first-hit", "lease", "fixed-window", "sliding-window",
                "sliding-log", "leaky-bucket", "token-bucket", "gcra", "even",
            ]
        ),
    ),
    max_size=4,
)  # fmt: skip
amounts = st.builds(
    "{}{}".format, numbers, st.sampled_from(["", "", "", "B", "kB", "KiB", "MiB", "mib"])
)
heads = st.one_of(
    st.builds("{}/{}".format, amounts, st.one_of(spans, st.sampled_from(["month", "year"]))),
    st.builds("{} per {}".format, amounts, spans),
    st.builds("{} concurrent".format, numbers),
)
texts = st.builds(lambda head, rest: " ".join([head, *rest]), heads, options)


def fields(limit: Limit) -> dict[str, object]:
    skipped = ("kernels", "unit") if limit.algorithm == "concurrency" else ("kernels",)
    return {name: getattr(limit, name) for name in Limit.__slots__ if name not in skipped}


def read(text: str) -> Limit | None:
    """A limit, or None if its text is refused as it should be: at a position, with a reason."""
    problem = None
    try:
        return Limit.parse(text)
    except LimitSyntaxError as error:
        problem = error
    assert problem.text == text
    assert 0 <= problem.position <= len(text)
    assert problem.problem
    return None


@given(texts)
def test_a_limit_reads_back_from_its_text(text: str) -> None:
    limit = read(text)
    if limit is None:
        return
    again = Limit.parse(str(limit))
    assert again == limit
    assert hash(again) == hash(limit)
    assert str(again) == str(limit)
    assert fields(again) == fields(limit)


words = st.one_of(
    st.sampled_from(
        [
            "100/minute", "100", "/", "per", "minute", "10", "s", "concurrent", "burst", "name",
            "tz", "anchor", "9999-12-31T23:59-23:59", "0001-01-01T00:00Z", "Asia", "../x",
            "warm-up", "0", "-1", "1.5", "1e9", "²", "٣", "10%", "soft", "9" * 17,
            "9" * 5000, "9" * 5000 + "s", "1/" + "9" * 5000 + "s", "1/0s",
            "1/0." + "0" * 5000 + "1s", "1.", ".", "\x00", "%",
            "refill", "cells", "queue", "1/us", "1/year", "month", "debt", "gcra", "initial",
        ]
    ),
    st.text(max_size=8),
)  # fmt: skip
garbage = st.one_of(
    st.text(),
    st.lists(words, max_size=6).map(" ".join),
    st.builds(
        lambda text, at, new: text[:at] + new + text[at + 1 :],
        texts,
        st.integers(0, 30),
        st.text(max_size=2),
    ),
)


@given(garbage)
@example("1/hour anchor 9999-12-31T23:59-23:59")
@example("1/" + "9" * 5000 + "s")
@example("1/second refill " + "9" * 5000 + "s")
def test_garbage_is_refused_with_its_position(text: str) -> None:
    limit = read(text)
    assert limit is None or Limit.parse(str(limit)) == limit
