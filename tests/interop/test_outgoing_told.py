"""What servers say of their limits, read from headers and from details of gRPC."""

from __future__ import annotations

import pickle
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.integrations.asked import AskedToWait, Asks
from headgate.integrations.grpc_words import retry_of
from headgate.integrations.told import PAIRS, Told, duration_of, header_map, told

NOW = 1_700_000_000.0
LATER = formatdate(NOW + 90, usegmt=True)


# -- what servers say


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (429, {"retry-after": "30"}, 30),
        (503, {"retry-after": " 2 "}, 2),
        (429, {"retry-after": "0.5"}, 0.5),
        (429, {"retry-after": LATER}, 90),
        (429, {"retry-after": LATER, "date": formatdate(NOW + 60, usegmt=True)}, 30),
        (429, {"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        (200, {"retry-after": "30"}, None),
        (302, {"retry-after": "30"}, None),
        (429, {"retry-after": "0"}, None),
        (429, {"retry-after": "-5"}, None),
        (429, {"retry-after": "soon"}, None),
        (429, {"retry-after": formatdate(NOW - 90, usegmt=True)}, None),
        (429, {}, None),
        # draft 11
        (200, {"ratelimit": '"burst";r=0;t=7'}, 7),
        (200, {"ratelimit": '"burst";r=1;t=7'}, None),
        (200, {"ratelimit": '"burst";r=5;t=7, "daily";r=0;t=600'}, 600),
        (200, {"ratelimit": '"a";r=0;t=3,"b";r=0;t=9;pk=:cHF3:'}, 9),
        (200, {"ratelimit": '"one, \\" two; r=0";r=4;t=5'}, None),
        (200, {"ratelimit": '"concurrent";r=0'}, None),
        (200, {"ratelimit": 'burst;t=4;r=0'}, 4),
        (429, {"ratelimit": '"burst";r=0;t=7', "retry-after": "3"}, 3),
        # draft 7
        (200, {"ratelimit": "limit=100, remaining=0, reset=50"}, 50),
        (200, {"ratelimit": "limit=100, remaining=1, reset=50"}, None),
        (200, {"ratelimit": "limit=100;w=60, reset=50"}, None),
        # draft 6
        (200, {"ratelimit-remaining": "0", "ratelimit-reset": "12"}, 12),
        (200, {"ratelimit-remaining": "3", "ratelimit-reset": "12"}, None),
        (200, {"ratelimit-reset": "12"}, None),
        (429, {"ratelimit-reset": "12"}, 12),
        # before the drafts: a wait, or an instant in seconds, milliseconds, ...
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12"}, 12),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 40:.0f}"}, 40),
        (200, {"x-ratelimit-remaining": "0.0", "x-ratelimit-reset": f"{NOW + 40:.3f}"}, 40),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(NOW + 4) * 1e3:.0f}"}, 4),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(NOW + 4) * 1e6:.0f}"}, 4),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW - 40:.0f}"}, None),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "1.25"}, 1.25),
        (200, {"x-rate-limit-remaining": "0", "x-rate-limit-reset": f"{NOW + 9:.0f}"}, 9),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 40:.0f}",
               "date": formatdate(NOW + 30, usegmt=True)}, 10),
        # language models
        (200, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}, 1),
        (200, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        (200, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        (200, {"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
               "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6s"}, 6),
        (200, {"anthropic-ratelimit-requests-remaining": "0",
               "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:30Z"}, 10),
    ],
)  # fmt: skip
def test_what_a_server_says(status: int, headers: dict[str, str], wait: float | None) -> None:
    found = told(status, headers, NOW)
    if wait is None:
        assert found is None
    else:
        assert found is not None
        assert found.wait == pytest.approx(wait, abs=1e-3)
        assert found.words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("6m0s", 360), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("1d", 86400), ("7µs", 7e-6),
     ("", None), ("12", None), ("1s ", 1), ("s", None), ("1x", None), ("1s,2s", None),
     ("9" * 60 + "s", float("9" * 60)), ("1s" * 40, None)],
)  # fmt: skip
def test_durations(text: str, seconds: float | None) -> None:
    found = duration_of(text)
    assert found is None if seconds is None else found == pytest.approx(seconds)


NAMES = st.sampled_from(
    [
        "date",
        "retry-after",
        "retry-after-ms",
        "ratelimit",
        *(name for pair in PAIRS for name in pair),
    ]
)
VALUES = st.one_of(
    st.text(max_size=80),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["0", "9" * 5000, "1" + "0" * 400, '"' * 4000, '"\\' * 4000, '"a";r=0;t=' +
                     "9" * 400, "1e999", "nan", "inf", "-0", "0x1F", "1_000", "١٢",
                     "1" * 4000 + "s",
                     "Thu, 99 Jan 99999 99:99:99 GMT", "9999-12-31T23:59:59+14:00",
                     "0001-01-01T00:00:00", ";" * 4000, "," * 4000, "=" * 4000, "r=0;t=1,"]),
    st.from_regex(r'("[a-z\\"]{0,5}"|[a-z]{0,3})(;[rtpkw]=[0-9.:-]{0,20}){0,4}', fullmatch=True),
    st.from_regex(r"(limit|remaining|reset)=[0-9-]{0,20}(, (remaining|reset)=[0-9]{0,9})*",
                  fullmatch=True),
    st.from_regex(r"([0-9]{1,20}(\.[0-9]{0,3})?(ns|us|ms|s|m|h|d)){1,5}", fullmatch=True),
    st.datetimes().map(lambda when: when.strftime("%a, %d %b %Y %H:%M:%S GMT")),
    st.datetimes().map(lambda when: when.isoformat() + "Z"),
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(
    status=st.sampled_from([200, 302, 429, 503, 500]),
    headers=st.dictionaries(NAMES, VALUES, max_size=6),
    now=st.floats(0, 4e9),
)
def test_no_server_makes_us_crash_or_wait_for_ever(
    status: int, headers: dict[str, str], now: float
) -> None:
    found = told(status, headers, now)
    asks = Asks(60.0, 10)
    if found is not None:
        assert found.wait > 0
        assert len(found.words) < 200
        asks.note("key", found, 1_000)
        asked = asks.find("key", 1_000)
        assert asked is not None
        assert 1_000 < asked.until <= 60_001_000
        str(AskedToWait("key", asked.words, asked.wait))


def test_words_of_grpc() -> None:
    assert retry_of({"grpc-retry-pushback-ms": "250"}) == (0.25, "grpc-retry-pushback-ms: 250")
    for nonsense in ("-1", "", "1.5", "x", "9" * 30):
        assert retry_of({"grpc-retry-pushback-ms": nonsense}) is None
    kind = b"type.googleapis.com/google.rpc.RetryInfo"
    delay = b"\x08\x03\x10\x80\xca\xb5\xee\x01"  # 3 s and 500,000,000 ns
    info = b"\x0a" + bytes([len(delay)]) + delay
    detail = b"\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(info)]) + info
    status = b"\x08\x08\x12\x04slow" + b"\x1a" + bytes([len(detail)]) + detail
    found = retry_of({"grpc-status-details-bin": status.decode("latin-1")})
    assert found is not None
    assert found.wait == pytest.approx(3.5)
    assert retry_of({"grpc-status-details-bin": status[:-9].decode("latin-1")}) is None


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=80), cut=st.integers(0, 60))
def test_no_bytes_of_grpc_make_us_crash(data: bytes, cut: int) -> None:
    kind = b"\x0a\x16/google.rpc.RetryInfo\x00"
    for raw in (data, b"\x1a" + bytes([len(kind) + len(data[:80])]) + kind[:cut] + data):
        found = retry_of({"grpc-status-details-bin": raw.decode("latin-1")})
        assert found is None or found.wait >= 0


def test_headers_of_one_name_are_joined() -> None:
    assert header_map([("A", "1"), ("b", "2"), ("a", "3")]) == {"a": "1, 3", "b": "2"}


# -- what was asked


def test_what_was_asked_is_bounded() -> None:
    asks = Asks(longest=60, most=100)
    for number in range(1_000):
        asks.note(f"host {number}", Told(10 + number / 100, "words"), 0)
        assert len(asks) <= 100
    assert asks.find("host 999", 0) is not None  # the longest stay
    asks.note("host 999", Told(1e300, "words"), 0)
    asked = asks.find("host 999", 0)
    assert asked is not None
    assert asked.until == 60_000_000
    asks.note("host 999", Told(1, "shorter"), 0)
    assert asks.find("host 999", 0) == asked
    assert asks.find("host 999", 60_000_000) is None
    asks.note("again", Told(5, "words"), 0)
    asks.forget("again")
    assert asks.find("again", 0) is None


def test_the_error_says_who_asked_and_travels() -> None:
    error = pickle.loads(pickle.dumps(AskedToWait("api.example.com", "Retry-After: 9", 8.5, 3)))
    assert isinstance(error, AskedToWait)
    assert error.retry_after == 8.5
    assert error.words == "Retry-After: 9"
    assert str(error) == (
        "the server of 'api.example.com' asked us to wait ('Retry-After: 9'); retry after 8.5 s"
    )
