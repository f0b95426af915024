"""The API's token as gateways show it: compared as a whole, and missed once a minute."""

from __future__ import annotations

import logging

import pytest

from headgate.service.admission import Admission, bearer


def test_tokens() -> None:
    wanted = Admission(b"a-token-of-enough-letters", "somebody", "say it")
    assert wanted
    assert not wanted.refuses([b"a-token-of-enough-letters"])
    assert not wanted.refuses([b"", b"a-token-of-enough-letters"])
    for given in ([], [b""], [b"a-token"], [b"a-token-of-enough-letters "], [b"\xff"]):
        assert wanted.refuses(given)
    nothing = Admission(b"", "somebody", "say it")
    assert not nothing
    assert not nothing.refuses([])


@pytest.mark.parametrize(
    ("authorization", "token"),
    [
        (b"Bearer abc", b"abc"),
        (b"bEARER  abc ", b"abc"),
        (b"Bearer", b""),
        (b"Basic abc", b""),
        (b"abc", b""),
        (b"", b""),
    ],
)
def test_bearers(authorization: bytes, token: bytes) -> None:
    assert bearer(authorization) == token


def test_the_log_says_it_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr("headgate.service.admission.time.monotonic", lambda: now)
    wanted = Admission(b"a-token-of-enough-letters", "somebody", "say it")
    with caplog.at_level(logging.WARNING, "headgate.service"):
        for _ in range(3):
            for _ in range(5):
                assert wanted.refuses([b"x"])
            now += 60
    assert [record.getMessage() for record in caplog.records] == [
        "somebody asked without the API's token: say it"
    ] * 3
