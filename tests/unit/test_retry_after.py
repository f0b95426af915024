"""Retry-After: seconds, dates and timedeltas, of errors, responses and functions of the user's."""

from __future__ import annotations

import email.message
import io
import urllib.error
from datetime import timedelta
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest

from headgate import ManualClock
from headgate.resilience.asked import asked_by, seconds_of
from headgate.resilience.notices import Notice
from headgate.resilience.retry import Retry

NOW = 784_111_777  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (7, 7.0), (0.5, 0.5), (-3, 0.0), (float("inf"), float("inf")), (timedelta(minutes=2), 120),
        (timedelta(seconds=-1), 0.0), ("120", 120.0), (" 1.5 ", 1.5), (b"3", 3.0), ("0", 0.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0), ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
        ("Sun Nov  6 08:49:47 1994", 10.0), ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 1994 00:00:00 GMT", 0.0),
        (None, None), (True, None), (float("nan"), None), ("", None), ("soon", None),
        ("-5", None), ("1e3", None), ("\u0667", None), ("9" * 400, None), ({}, None),
        ("Sun, 06 Nov 99999999999 08:49:47 GMT", None), ("\udcff", None),
    ],
)  # fmt: skip
def test_how_it_may_be_said(said: Any, seconds: float | None) -> None:
    assert seconds_of(said, NOW) == seconds


def http_error(**headers: str) -> urllib.error.HTTPError:
    found = email.message.Message()
    for name, value in headers.items():
        found[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://example/", 503, "sick", found, io.BytesIO())


@pytest.mark.parametrize(
    ("came", "seconds"),
    [
        (SimpleNamespace(retry_after=3), 3.0),
        (SimpleNamespace(retry_after="4"), 4.0),
        (SimpleNamespace(headers={"Retry-After": "5"}), 5.0),
        (SimpleNamespace(headers={"retry-after": b"6"}), 6.0),
        (SimpleNamespace(response=SimpleNamespace(headers={"retry-after": "7"})), 7.0),
        (SimpleNamespace(headers=None, response=None), None),
        (SimpleNamespace(headers={"Retry-After": "soon"}), None),
        (SimpleNamespace(headers=["Retry-After"]), None),
        ("a plain result", None),
        (None, None),
    ],
)
def test_who_may_say_it(came: Any, seconds: float | None) -> None:
    assert asked_by(came, NOW) == seconds


def test_an_error_of_the_standard_library() -> None:
    with http_error(Retry_After="8") as error:
        assert asked_by(error, NOW) == 8
    with http_error() as error:
        assert asked_by(error, NOW) is None


def test_a_date_is_read_by_the_servers_own_clock() -> None:
    """Which is an hour behind ours; by our clock it would be over."""
    told = {"Date": formatdate(NOW - 3600, usegmt=True)}
    told["Retry-After"] = formatdate(NOW - 3600 + 20, usegmt=True)
    assert asked_by(SimpleNamespace(headers=told), NOW) == 20
    assert seconds_of(told["Retry-After"], NOW) == 0


def pauses(retry: Retry, told: list[Notice], results: list[Any]) -> list[float]:
    """The pauses that are made, on a clock that nobody has to advance."""
    left = iter(results)
    retry.call(lambda: next(left))
    return [notice.values["pause"] for notice in told if notice.kind == "retry.again"]


def made(**options: Any) -> tuple[Retry, list[Notice]]:
    class Hasty(ManualClock):
        def call_at(self, micros: int, call: Any) -> Any:
            self.advance(max(0, micros - self.micros()) / 1e6)
            return super().call_at(micros, call)

    told: list[Notice] = []
    retry = Retry(
        3, results=lambda r: r.status_code == 503, pause=0, budget=None, clock=Hasty(NOW),
        listeners=[told.append], **options,
    )  # fmt: skip
    return retry, told


def response(status: int, **headers: str) -> Any:
    return SimpleNamespace(
        status_code=status, headers={name.replace("_", "-"): said for name, said in headers.items()}
    )


def test_a_response_is_waited_for() -> None:
    retry, told = made()
    date = formatdate(NOW + 2 + 9, usegmt=True)
    answers = [response(503, Retry_After="2"), response(503, Retry_After=date), response(200)]
    assert pauses(retry, told, answers) == [2, 9]


def test_a_function_may_give_the_header_as_it_is() -> None:
    retry, told = made(retry_after=lambda r: r.headers.get("X-Wait"))
    assert pauses(retry, told, [response(503, X_Wait="4"), response(200)]) == [4]


def test_a_header_that_asks_for_too_much_ends_it() -> None:
    retry, told = made(longest=5)
    assert pauses(retry, told, [response(503, Retry_After="6"), response(200)]) == []
    assert [notice.kind for notice in told] == ["retry.too_long"]
