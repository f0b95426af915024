"""What every adapter does: finds its gate, asks who calls, and says no.

An adapter builds Facts from its framework's request and renders the verdict; the rest is here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..addresses import Trusted
from ..answers import too_large
from ..limit import Limit
from ..problems import Replace, refusal_body
from ..rules.model import KeyPart, Rule, RuleSet

if TYPE_CHECKING:
    from ..clock import Clock
    from ..facts import Facts
    from ..gate import AsyncGate, Gate, Verdict

__all__ = [
    "Answer",
    "CommonWords",
    "Find",
    "Finder",
    "gate_of",
    "known_of",
    "pause_of",
    "refusal",
    "rules_of",
    "succeeded",
    "trusted_of",
]

logger = logging.getLogger("headgate")
Finder = Callable[[Any], Any]
"""Finds something out about a framework's request: the user, say; None or "" if it is not known."""
SOURCES = ("ip", "user", "device", "api_key", "host", "route", "path", "method", "origin",
           "resource", "header", "param", "arg", "attribute")  # fmt: skip


class Answer(NamedTuple):
    """The response to a refused call."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class CommonWords(TypedDict, total=False):
    """What every adapter may be told by name; the gate's own kind each adds itself."""

    rules: Any
    """A rules file, its text, a RuleSet or a source, in place of limits as text."""
    key: str | Sequence[str]
    """What limits as text are counted by."""
    store: Any
    user: Finder | None
    """What is known of a call: this and the next five are functions of the request."""
    device: Finder | None
    api_key: Finder | None
    origin: Finder | None
    attributes: Finder | None
    priority: Finder | None
    trusted: Trusted | Sequence[str] | str | None
    """The proxies whose word on the client's address is taken."""
    body: Replace | None
    """A refusal's own body: a function of the verdict and the Accept header."""
    failed: Finder | None
    """Whether a response is a failure, for limits and policies alike; else its status says: from
    500 on it is, and from 400 on for limits that count failures."""
    name: str
    """The namespace of the gate, and what headers call its limits; the rest is the gate's too."""
    clock: Clock | None
    room: Callable[[], float] | None
    functions: Mapping[str, Callable[..., Any]] | None


def rules_of(
    limits: Sequence[str | Limit],
    key: str | Sequence[str] = "ip",
    name: str = "default",
    **words: Any,
) -> RuleSet:
    """One rule for all calls, from limits as text: the start that needs no file.

    key    what to count by: `ip`, `user`, `header:X-Tenant`, ..., or several of them
    words  what else the rule says, as for Rule
    """
    parts = []
    for text in (key,) if isinstance(key, str) else key:
        source, _, rest = text.partition(":")
        if source not in SOURCES:
            raise ValueError(f"a key is made of {', '.join(SOURCES)}; not of {text!r}")
        parts.append(KeyPart(source, rest))
    made = [limit if isinstance(limit, Limit) else Limit.parse(limit) for limit in limits]
    named = tuple(limit.named(f"{name}#{place}") for place, limit in enumerate(made))
    return RuleSet(rules=(Rule(name=name, key=tuple(parts), limits=named, **words),))


def gate_of(
    kind: type[Any],
    limits: Sequence[str | Limit],
    *,
    rules: Any = None,
    gate: Any = None,
    key: str | Sequence[str] = "ip",
    store: Any = None,
    words: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """The gate of an adapter: one that exists, or one for a rules file or for limits as text.

    words   what else the rule of those limits says, such as `wait`
    """
    given = [
        word for word, value in (("limits", limits), ("rules", rules), ("gate", gate)) if value
    ]
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        raise TypeError(f"give limits as text, or rules=, or gate=, one of the three; not {said}")
    if words and not limits:
        raise TypeError(f"{', '.join(words)}: that is for limits as text; rules say it themselves")
    if gate is None:
        return kind(rules if rules else rules_of(limits, key, **words or {}), store, **options)
    if not isinstance(gate, kind):
        raise TypeError(f"this adapter needs an {kind.__name__}, not a {type(gate).__name__}")
    if store is not None or options:
        raise TypeError("store= and the like belong to the gate that was given")
    return gate


class Find(NamedTuple):
    """How to find out who calls; each is a function of the framework's request."""

    user: Finder | None = None
    device: Finder | None = None
    api_key: Finder | None = None
    origin: Finder | None = None
    attributes: Finder | None = None
    priority: Finder | None = None


def known_of(find: Find, request: Any) -> dict[str, Any]:
    """What those functions find, as words for Facts; what is not known is left out."""
    known: dict[str, Any] = {}
    for word, finder in zip(find._fields, find, strict=True):
        if finder is not None:
            value = finder(request)
            if value is not None and value != "":
                plain = word in ("attributes", "priority") or isinstance(value, str)
                known[word] = value if plain else str(value)
    return known


def trusted_of(trusted: Trusted | Sequence[str] | str | None) -> Trusted | None:
    """The proxies whose headers are believed, however they were given."""
    if trusted is None or isinstance(trusted, Trusted):
        return trusted
    networks = (trusted,) if isinstance(trusted, str) else tuple(trusted)
    return Trusted(*networks) if networks else None


def succeeded(status: int) -> str:
    """How a call ended, by the status of its response.

    From 500 on it failed. From 400 on it was the caller's mistake: limits that count failures
    count it, breakers do not, or anybody could open them for everybody.
    """
    return "success" if status < 400 else "mistake" if status < 500 else "failure"


def pause_of(verdict: Verdict, poll: float) -> float | None:
    """Seconds until a refused call should ask again; None if that would never help.

    When a permit comes back nobody knows, so for those it is `poll` at most.
    """
    decision = verdict.decision
    assert decision is not None  # a refusal has one
    if not verdict.decisions or too_large(decision):  # on a deny list, or above the capacity
        return None
    wait = verdict.retry_after
    return min(wait, poll) if decision.limit.algorithm == "concurrency" else wait


def refusal(
    gate: Gate | AsyncGate,
    facts: Facts,
    verdict: Verdict,
    accept: str = "",
    body: Replace | None = None,
) -> Answer:
    """The response to a refused call: what its rule has as `otherwise`, or an error.

    A page that is not there, or a function that fails, does not turn a refusal into a crash.
    """
    headers = verdict.headers()
    if verdict.otherwise is not None:
        try:
            return _instead(gate, facts, verdict, headers)
        except Exception:
            logger.exception("otherwise of rule %s failed: an error is sent", verdict.rule)
    try:
        status, kind, content = refusal_body(verdict, accept, body)
    except Exception:
        logger.exception("body= failed: a plain error is sent")
        status, kind, content = refusal_body(verdict, accept)
    return _told(status, kind, content, headers)


def _instead(
    gate: Gate | AsyncGate, facts: Facts, verdict: Verdict, headers: list[tuple[str, str]]
) -> Answer:
    other = verdict.otherwise
    assert other is not None  # or this is not asked
    if other.kind == "redirect":
        return Answer(303, [("Location", _line(other.value)), *headers], b"")
    if other.kind == "page":
        page = _page(str(other.value))
        return _told(verdict.status, "text/html; charset=utf-8", page, headers)
    data = gate.function(other.value)(facts) if other.kind == "function" else other.value
    if isinstance(data, Coroutine):
        data.close()
        raise TypeError(f"{other.value} is awaited, and a function of a rule is a plain one")
    return _told(200, "application/json", json.dumps(_plain(data)).encode(), headers)


def _told(status: int, kind: str, body: bytes, headers: list[tuple[str, str]]) -> Answer:
    length = ("Content-Length", str(len(body)))
    return Answer(status, [("Content-Type", kind), length, *headers], body)


def _line(text: Any) -> str:
    """A header's value; a rule's text cannot begin another header."""
    return "".join(letter for letter in str(text) if letter >= " " and letter != "\x7f")


def _page(text: str) -> bytes:
    """A page as it is written, or the file it is in."""
    if "<" in text or "\n" in text:
        return text.encode()
    return Path(text).read_bytes()


def _plain(data: Any) -> Any:
    """Data as JSON can write it; what a rules file holds may be read-only."""
    if isinstance(data, Mapping):
        return {str(name): _plain(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return data
