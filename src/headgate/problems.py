"""Problems: the body of a refusal, in the form that the caller prefers.

Programs get problem details (RFC 9457), browsers a small page, and whoever asks for it plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from html import escape
from http import HTTPStatus
from typing import Any, Protocol

from .decision import Decision
from .headers import each, policy_name, retry_seconds

__all__ = ["Body", "Refused", "Replace", "preferred", "problem", "refusal_body"]

QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
KINDS = ("application/problem+json", "text/html", "text/plain")
"""Content types; of two that are liked as much, the first."""
LONGEST = 4096
"""Of an Accept header so many characters are read, and no browser sends a tenth of them."""
INFINITY = float("inf")

Body = tuple[int, str, bytes]
"""Status, content type, content."""


class Refused(Protocol):
    """What a body is made from; a Verdict is one."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def retry_after(self) -> float:
        """Seconds until it is worth trying again; infinity if never."""
        ...

    @property
    def decisions(self) -> Sequence[tuple[str, Decision]]:
        """Pairs of a rule's name and its decision."""
        ...


Replace = Callable[[Any, str], tuple[int, str, bytes | str] | None]
"""A user's own body: called with what was refused and the Accept header."""


def refusal_body(refused: Refused, accept: str = "", replace: Replace | None = None) -> Body:
    """Status, content type and content of a refusal; `replace` may give others, or None."""
    if replace is not None:
        own = replace(refused, accept)
        if own is not None:
            status, kind, content = own
            return status, kind, content.encode() if isinstance(content, str) else content
    told = problem(refused)
    status = refused.status
    kind = preferred(accept)
    if kind == "text/html":
        return status, "text/html; charset=utf-8", _page(told).encode()
    if kind == "text/plain":
        return status, "text/plain; charset=utf-8", f"{told['title']}. {told['detail']}\n".encode()
    return status, kind, json.dumps(told).encode()


def problem(refused: Refused) -> dict[str, Any]:
    """Problem details as a dict, for those who write their own JSON.

    The names in `violated-policies` are those in the RateLimit headers. A call that no limit
    refused (it is on a list of those who never pass) exceeded no quota, and is told only no.
    """
    hidden = frozenset(getattr(refused, "shadowed", ()))
    violated = [
        policy_name(name)
        for part in refused.decisions
        if not part[1].allowed and part[0] not in hidden
        for name, decision in each((part,))
        if not decision.allowed
    ]
    status = refused.status
    told: dict[str, Any] = {
        "type": QUOTA_EXCEEDED if violated else "about:blank",
        "title": "Too many requests" if violated else _phrase(status),
        "status": status,
        "detail": "This request is not allowed.",
    }
    if violated:
        told["violated-policies"] = violated
        told["detail"] = "A limit was exceeded."
    if refused.retry_after != INFINITY:
        seconds = told["retry_after"] = retry_seconds(refused.retry_after)
        told["detail"] += f" Try again in {_spoken(seconds)}."
    return told


_RANGE = re.compile(r"\s*([^\s;,/\"]+)/([^\s;,/\"]+)\s*(?:;([^,]*))?")
_WEIGHT = re.compile(r"(?:^|;)\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*(?:;|$)", re.ASCII | re.IGNORECASE)


def preferred(accept: str) -> str:
    """The content type that an Accept header likes best; problem details where it is silent.

    A type that is named wins over one that a wildcard merely lets in.
    """
    if not accept or accept == "*/*":
        return KINDS[0]
    best, chosen = (0.0, -1), KINDS[0]
    liked = _liked(accept[:LONGEST].lower())
    for kind in KINDS:
        names = [(kind, 2), (kind.partition("/")[0] + "/*", 1), ("*/*", 0)]
        if kind == KINDS[0]:
            names.insert(1, ("application/json", 2))  # problem details are JSON
        for name, nearness in names:
            if name in liked:
                if (liked[name], nearness) > best and liked[name] > 0:
                    best, chosen = (liked[name], nearness), kind
                break
    return chosen


def _liked(accept: str) -> dict[str, float]:
    """Each media range with its weight; what cannot be read is passed over."""
    liked: dict[str, float] = {}
    for part in accept.split(","):
        found = _RANGE.fullmatch(part)
        if found:
            weight = _WEIGHT.search(found[3] or "")
            liked[f"{found[1]}/{found[2]}"] = min(1.0, float(weight[1])) if weight else 1.0
    return liked


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Refused"


def _spoken(seconds: int) -> str:
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return f"{-(-seconds // size)} {word}s"
    return "1 second" if seconds == 1 else f"{seconds} seconds"


def _page(told: dict[str, Any]) -> str:
    """A page that needs nothing from anywhere else."""
    title, detail = escape(told["title"]), escape(told["detail"])
    return f"""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 20vh auto; padding: 0 1rem;
color-scheme: light dark }}
</style>
<h1>{title}</h1>
<p>{detail}</p>
</html>
"""
