"""Bodies of refusals: problem details, a page, plain text, or the user's own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from headgate import Decision, Limiter, ManualClock
from headgate.headers import Part
from headgate.problems import preferred, problem, refusal_body

JSON, HTML, PLAIN = "application/problem+json", "text/html", "text/plain"
CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@dataclass
class Verdict:
    decisions: list[Part] = field(default_factory=list)
    status: int = 429
    retry_after: float = 12.2
    shadowed: tuple[str, ...] = ()


def hits(count: int, *limits: str) -> Decision:
    limiter = Limiter(*limits, clock=ManualClock(0))
    for _ in range(count):
        decision = limiter.hit("k")
    return decision


def refused(name: str = "daily") -> Verdict:
    return Verdict([Part("open", hits(1, "10/second")), Part(name, hits(2, "1/day"))])


def test_problem_details() -> None:
    status, kind, content = refusal_body(refused())
    assert (status, kind) == (429, JSON)
    assert json.loads(content) == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": 429,
        "detail": "A limit was exceeded. Try again in 13 seconds.",
        "violated-policies": ["daily"],
        "retry_after": 13,
    }


def test_never_says_no_time() -> None:
    told = problem(Verdict(refused().decisions, retry_after=float("inf")))
    assert "retry_after" not in told
    assert told["detail"] == "A limit was exceeded."


def test_names_are_those_of_the_headers() -> None:
    joint = hits(4, "3/minute fixed-window", "500/hour")
    assert problem(Verdict([Part("größe", joint)]))["violated-policies"] == ["gr%C3%B6%C3%9Fe#0"]


def test_a_shadow_violates_nothing() -> None:
    verdict = refused()
    verdict.decisions.append(Part("trial", hits(2, "1/day")))
    verdict.shadowed = ("trial",)
    assert problem(verdict)["violated-policies"] == ["daily"]


def test_denied_without_a_limit() -> None:
    told = problem(Verdict(status=403, retry_after=float("inf")))
    assert told == {
        "type": "about:blank",
        "title": "Forbidden",
        "status": 403,
        "detail": "This request is not allowed.",
    }
    assert problem(Verdict(status=499))["title"] == "Refused"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", JSON),
        ("*/*", JSON),
        (CHROME, HTML),
        ("text/html", HTML),
        ("TEXT/HTML", HTML),
        ("application/json", JSON),
        ("application/json, text/plain, */*", JSON),
        ("application/json, text/html;q=0.9", JSON),
        ("text/html;q=0.5, application/json", JSON),
        ("text/html, */*;q=0.01", HTML),
        ("text/html, */*", HTML),
        ("text/plain", PLAIN),
        ("text/*", HTML),
        ("text/plain;q=0.9, text/html;q=0.8", PLAIN),
        ("text/html;q=0", JSON),
        ("text/html;level=1;q=0.3, text/plain;q=0.4", PLAIN),
        ("text/html;q=0, */*", JSON),
        ("application/problem+json;q=0, */*;q=0.1", HTML),
        ("image/png", JSON),
        ("application/*", JSON),
        ("text/html;q=nan", HTML),
        (";;,,//,q=1,text/", JSON),
        ("\0\xff, text/html", HTML),
        ("text/html," * 100_000, HTML),
    ],
)
def test_preferred(accept: str, kind: str) -> None:
    assert preferred(accept) == kind


def test_page() -> None:
    status, kind, content = refusal_body(refused("<script>alert(1)</script>"), CHROME)
    text = content.decode()
    assert (status, kind) == (429, "text/html; charset=utf-8")
    assert text.startswith("<!doctype html>")
    assert "Try again in 13 seconds" in text
    assert "<script" not in text
    assert "http" not in text  # nothing comes from anywhere else


def test_plain_text() -> None:
    assert refusal_body(refused(), PLAIN) == (
        429,
        "text/plain; charset=utf-8",
        b"Too many requests. A limit was exceeded. Try again in 13 seconds.\n",
    )


@pytest.mark.parametrize(
    ("seconds", "spoken"),
    [
        (0.2, "1 second"),
        (119, "119 seconds"),
        (121, "3 minutes"),
        (7200, "2 hours"),
        (10**6, "12 days"),
    ],
)
def test_times_as_people_say_them(seconds: float, spoken: str) -> None:
    verdict = Verdict(refused().decisions, retry_after=seconds)
    assert problem(verdict)["detail"].endswith(f"Try again in {spoken}.")


def test_replaced() -> None:
    def own(verdict: Any, accept: str) -> tuple[int, str, str] | None:
        return (503, "application/json", '{"é": 1}') if accept == "mine" else None

    assert refusal_body(refused(), "mine", own) == (503, "application/json", '{"é": 1}'.encode())
    assert refusal_body(refused(), "", own) == refusal_body(refused())
    bare = refusal_body(refused(), replace=lambda verdict, _: (verdict.status, PLAIN, b"no"))
    assert bare == (429, PLAIN, b"no")
