"""Scopes: what the adapters of ASGI share: facts of a scope, a response on its way, the gate.

Nearly every call meets rules that hold nothing, so nothing is prepared that they do not ask for:
headers and host are read from the scope when a rule or a hook wants them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..addresses import Trusted, client_address
from ..facts import NOTHING, Facts
from ..gate import AsyncGate
from ..gating.permit import ASYNC_NOTHING
from ..paths import normal_path
from ..rules.patterns import host_of
from .common import (
    Answer,
    CommonWords,
    Find,
    Finder,
    gate_of,
    known_of,
    refusal,
    succeeded,
    trusted_of,
)

if TYPE_CHECKING:
    from ..gate import AsyncVerdict
    from ..limit import Limit
    from ..problems import Replace

__all__ = [
    "STARTS", "App", "Exchange", "Message", "Receive", "Scope", "ScopeFacts", "ScopeGate", "Send",
    "Words", "with_headers",
]  # fmt: skip

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

STARTS = frozenset(("http.response.start", "websocket.accept", "websocket.http.response.start"))
"""Messages that carry the headers of a response."""
ENDS = frozenset(
    ("http.response.body", "http.response.pathsend", "http.response.zerocopysend",
     "websocket.http.response.body", "websocket.close")
)  # fmt: skip
"""Messages of which the last ends a response."""


class ScopeFacts(Facts):
    """Facts of a scope; what is not filled in is found out when it is first read."""

    __slots__ = ("scope",)

    def __init__(self, scope: Scope, trusted: Trusted | None = None) -> None:
        self.scope = scope
        self.method = scope.get("method", "GET")  # by which a websocket begins
        self.path = normal_path(scope["path"], decoded=True)
        self.route = ""
        client = scope.get("client")
        self.ip = client_address(client[0] if client else None, scope["headers"], trusted)

    def __getattr__(self, name: str) -> Any:
        find = _LATER.get(name)
        if find is None:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        value = find(self)
        setattr(self, name, value)
        return value


def _headers(facts: ScopeFacts) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw, value in facts.scope["headers"]:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def _size(facts: ScopeFacts) -> int:
    digits = facts.headers.get("content-length", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


_LATER: dict[str, Callable[[ScopeFacts], Any]] = {
    "headers": _headers,
    "host": lambda facts: host_of(facts.headers.get("host", "")),
    "size": _size,
    "priority": lambda _: 0,
    **dict.fromkeys(("resource", "user", "device", "api_key", "origin", "domain"), lambda _: ""),
    **dict.fromkeys(("params", "args", "attributes"), lambda _: NOTHING),
    **dict.fromkeys(("entries", "chain"), lambda _: ()),
}


class Exchange:
    """A response on its way: it is told of the limits, and gives back when it has been sent."""

    __slots__ = ("_held", "_start", "_verdicts", "send")

    def __init__(self, send: Send | None = None) -> None:
        self.send = send
        self._verdicts: list[AsyncVerdict] = []
        self._held: list[tuple[AsyncVerdict, Finder | None]] = []
        self._start: Message | None = None

    def add(self, verdict: AsyncVerdict, failed: Finder | None = None) -> None:
        """A call was let in: its headers go along, and what it holds is held until the end."""
        self._verdicts.append(verdict)
        if verdict.permit is not ASYNC_NOTHING:
            self._held.append((verdict, failed))

    def headers(self) -> list[tuple[str, str]]:
        """The headers of all that was added."""
        return [pair for verdict in self._verdicts for pair in verdict.headers()]

    def saw(self, start: Message) -> None:
        """How the response begins; a message, or what stands for it: `{"status": 200}`."""
        self._start = start

    async def __call__(self, message: Message) -> None:
        """Send, in place of the server's own `send`."""
        assert self.send is not None  # only where there is nothing to send through
        kind = message["type"]
        if kind in STARTS:
            self.saw(message)
            for verdict in self._verdicts:
                message = with_headers(message, verdict)
        await self.send(message)
        if kind in ENDS and not message.get("more_body"):
            await self.over("failure" if self._start is None else "success")

    async def run(self, app: App, scope: Scope, receive: Receive) -> None:
        """Call an application, and give back however it ends."""
        # Whoever leaves or is cut off says nothing of the call; only a websocket just ends.
        outcome = "ignored"
        try:
            await app(scope, receive, self)
            if scope["type"] == "websocket":
                outcome = "success"
        except Exception:
            self._start, outcome = None, "failure"
            raise
        finally:
            await self.over(outcome)

    async def over(self, outcome: str = "") -> None:
        """Give back all that is held; without an outcome, by what was seen of the response."""
        if not outcome:
            outcome = "ignored" if self._start is None else "success"
        while self._held:
            verdict, failed = self._held.pop()
            try:
                await verdict.permit.release(self._judged(outcome, failed))
            except Exception:  # the response stands, and what is leased comes back by itself
                logging.getLogger("headgate").exception("a permit could not be given back")

    def _judged(self, outcome: str, failed: Finder | None) -> str:
        start = self._start
        if start is None:
            return outcome
        if failed is None:
            found = succeeded(start.get("status", 101))
            return outcome if found == "success" else found
        try:
            return "failure" if failed(start) else outcome
        except Exception:
            logging.getLogger("headgate").exception("failed= could not judge a response")
            return "failure"


def with_headers(message: Message, verdict: AsyncVerdict) -> Message:
    """A message with the headers of a verdict; as it is if they cannot be written."""
    try:
        # Another dict: whoever sends a constant would send more headers each time.
        return {**message, "headers": [*message.get("headers", ()), *verdict.raw_headers()]}
    except Exception:  # a response without them is better than none
        return message


class Words(CommonWords, total=False):
    """What an adapter may be told by name; `failed` sees the message that starts a response."""

    gate: AsyncGate | None
    """A gate that exists already, in place of limits and rules."""


class ScopeGate:
    """A gate for calls that come as scopes, and what is needed to ask it."""

    def __init__(
        self, limits: Sequence[str | Limit], label: str = "", **words: Unpack[Words]
    ) -> None:
        options: dict[str, Any] = {**words}
        label = label or options.get("name", "")
        find = Find(*(options.pop(word, None) for word in Find._fields))
        for word, finder in zip(Find._fields, find, strict=True):
            call = getattr(finder, "__call__", None)  # noqa: B004 # of an object, its method
            if inspect.iscoroutinefunction(finder) or inspect.iscoroutinefunction(call):
                raise TypeError(f"{word} is a plain function: what it finds is not awaited")
        self._find = find if any(find) else None
        self._trusted = trusted_of(options.pop("trusted", None))
        self._body: Replace | None = options.pop("body", None)
        self.failed: Finder | None = options.pop("failed", None)
        # Limits have a name of their own, so that headers can tell them from other limits.
        rule = {"name": label} if limits and label else None
        self.gate: AsyncGate = gate_of(AsyncGate, limits, words=rule, **options)

    def request(self, scope: Scope) -> Any:
        """What the functions that find out who calls are given."""
        return scope

    def facts(self, scope: Scope) -> ScopeFacts:
        """What is known of a call."""
        facts = ScopeFacts(scope, self._trusted)
        if self._find is not None:
            for word, value in known_of(self._find, self.request(scope)).items():
                setattr(facts, word, value)
        return facts

    def answer(self, facts: Facts, verdict: AsyncVerdict) -> Answer:
        """The response to a refused call."""
        return refusal(self.gate, facts, verdict, facts.headers.get("accept", ""), self._body)
