"""Forward-auth: a gateway asks before it lets a request through, and passes our refusal on.

nginx understands no refusal but 401 and 403, and drops the body; so it gets 403 with headers that
say what the client is to be told. Traefik passes on whatever is not 2xx, so it gets the refusal
itself. Neither says how a request ended: what would be held until then is not held.

The gateway that asks is believed: who it is that calls, and for what, stands in the headers it
writes. So only gateways may reach this listener.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..gating.permit import ASYNC_NOTHING
from ..headers import policy_name
from ..problems import Replace, problem, refusal_body
from .admission import Admission
from .faults import Fault
from .original import facts_from_nginx, facts_from_traefik, headers_of, known_by

if TYPE_CHECKING:
    from ..addresses import Trusted
    from ..facts import Facts
    from ..gate import AsyncGate
    from ..rules.model import Otherwise
    from ..verdict import AsyncVerdict, Verdict

__all__ = [
    "Answer", "Forward", "answer_to_nginx", "answer_to_traefik", "facts_from_nginx",
    "facts_from_traefik", "headers_of",
]  # fmt: skip

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Pairs = list[tuple[str, str]]
Answer = tuple[int, Pairs, bytes]
"""Status, headers, body."""

TOKEN = "X-Headgate-Token"
LONGEST = 2048
"""A problem longer than this is told without its policies: nginx has 4 KiB for all headers."""
HOST = re.compile(r"[A-Za-z0-9._-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?", re.ASCII)
logger = logging.getLogger("headgate")


def answer_to_nginx(verdict: Verdict) -> Answer:
    """204 or 403; what the client is to be told is in headers, from which nginx tells it.

    `X-Headgate-Status` is the status, `X-Headgate-Body` problem details in one line.
    """
    headers = verdict.headers()
    if verdict.allowed:
        return 204, headers, b""
    status = verdict.status
    other = verdict.otherwise
    if other is not None and other.kind == "redirect":
        status = 303
        headers.append(("Location", _line(other.value)))
    told = problem(verdict)
    body = json.dumps(told)
    if len(body) > LONGEST:
        told.pop("violated-policies", None)
        body = json.dumps(told)
    headers += [
        ("X-Headgate-Status", str(status)),
        ("X-Headgate-Rule", policy_name(verdict.rule)),
        ("X-Headgate-Body", body),
    ]
    return 403, headers, b""


def answer_to_traefik(
    verdict: Verdict,
    facts: Facts,
    function: Callable[[str], Callable[..., Any]],
    replace: Replace | None = None,
) -> Answer:
    """200, or the refusal as the client gets it; its status is never 2xx, which would let it pass.

    `function` finds what a rule calls by name; `AsyncGate.function` does.
    """
    headers = verdict.headers()
    if verdict.allowed:
        return 200, headers, b""
    other = verdict.otherwise
    if other is not None:
        try:
            return _in_its_place(other, verdict, facts, function)
        except Exception:  # a page that is gone, a function that fails: it is refused all the same
            logger.exception("rule %s has nothing to give in place of an error", verdict.rule)
    status, kind, body = refusal_body(verdict, facts.headers.get("accept", ""), replace)
    return _refusing(status), [("Content-Type", kind), *headers], body


def _in_its_place(
    other: Otherwise, verdict: Verdict, facts: Facts, function: Callable[[str], Any]
) -> Answer:
    """What a rule gives in place of an error."""
    headers = verdict.headers()
    if other.kind == "redirect":
        return 303, [("Location", _absolute(_line(other.value), facts)), *headers], b""
    if other.kind == "page":
        page = str(other.value)
        kind = "text/html; charset=utf-8"
        body = page.encode() if "<" in page or "\n" in page else Path(page).read_bytes()
    else:
        data = function(other.value)(facts) if other.kind == "function" else other.value
        kind, body = "application/json", json.dumps(data, default=_plain).encode()
    return _refusing(verdict.status), [("Content-Type", kind), *headers], body


def _absolute(location: str, facts: Facts) -> str:
    """A path with the host that the client knows: Traefik would put that of headgate before it."""
    proto = facts.headers.get("x-forwarded-proto", "")
    host = facts.headers.get("x-forwarded-host", "")
    if not location.startswith("/") or proto not in ("http", "https") or not HOST.fullmatch(host):
        return location
    return f"{proto}://{host}{location}"


def _refusing(status: int) -> int:
    return status if status >= 300 else 429


def _line(text: Any) -> str:
    """A header's value; a rule's text cannot begin another header."""
    return "".join(letter for letter in str(text) if letter >= " " and letter != "\x7f")


def _plain(data: Any) -> Any:
    """What a rules file holds is read-only, and JSON writes dicts."""
    if isinstance(data, Mapping):
        return dict(data)
    raise TypeError(f"{type(data).__name__} is not JSON")


class Forward:
    """The endpoints for gateways, as an ASGI application; `routes` has each of them by its path.

    gate     what decides
    trusted  proxies in front of the gateway whose X-Forwarded-For it passes on
    replace  gives a refusal another body, for Traefik: see problems.Replace
    token    what a gateway must send as X-Headgate-Token; Authorization is its client's
    """

    def __init__(
        self,
        gate: AsyncGate,
        trusted: Trusted | None = None,
        replace: Replace | None = None,
        token: bytes = b"",
    ) -> None:
        self.gate = gate
        self._trusted = trusted
        self._replace = replace
        self._admission = Admission(token, "a gateway", f"it is sent as {TOKEN}: TOKEN")
        self._warned: set[str] = set()
        self.routes = {"/auth/nginx": self.nginx, "/auth/traefik": self.traefik}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        handle = self.routes.get(scope["path"]) if scope["type"] == "http" else None
        if handle is None:
            await _respond(send, *Fault(404, "there is nothing here").response())
        else:
            await handle(scope, receive, send)

    async def nginx(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer nginx's auth_request."""
        try:
            known = known_by(scope.get("query_string", b""))
            facts = facts_from_nginx(self._headers(scope), self._trusted, known)
        except Fault as fault:
            await _respond(send, *fault.response())
            return
        verdict = await self._asked(facts)
        if verdict.allowed:
            await _respond(send, 204, verdict.raw_headers(), b"")
        else:
            status, headers, body = answer_to_nginx(verdict)
            await _respond(send, status, _raw(headers), body)

    async def traefik(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer Traefik's ForwardAuth."""
        try:
            known = known_by(scope.get("query_string", b""))
            facts = facts_from_traefik(self._headers(scope), self._trusted, known)
        except Fault as fault:
            await _respond(send, *fault.response())
            return
        verdict = await self._asked(facts)
        status, headers, body = answer_to_traefik(verdict, facts, self.gate.function, self._replace)
        await _respond(send, status, _raw(headers), body)

    def _headers(self, scope: Scope) -> dict[str, str]:
        """The headers of a question, without the token; a Fault if that is wanted and missing."""
        headers = headers_of(scope["headers"])
        if self._admission:
            given = headers.pop(TOKEN.lower(), "").encode("latin-1")  # no rule's business
            if self._admission.refuses((given,)):
                # A scheme that no browser knows: it would ask its user for a password.
                challenge = (b"www-authenticate", b'Headgate-Token realm="headgate"')
                problem = f"the gateway does not send the API's token: {TOKEN}: TOKEN"
                raise Fault(401, problem, field=TOKEN, headers=[challenge])
        return headers

    async def _asked(self, facts: Facts) -> AsyncVerdict:
        """The verdict; what a call holds is given back at once, for nobody tells when it ends."""
        verdict = await self.gate.check(facts)
        if verdict.allowed and verdict.permit is not ASYNC_NOTHING:
            for bound in verdict._bounds:
                self._warn(bound.rule.rule)
            await verdict.permit.release("success")
        return verdict

    def _warn(self, rule: Any) -> None:
        held = rule.count == "failures" or any(
            limit.algorithm == "concurrency" for limit in rule.limits
        )
        if held and rule.name not in self._warned:
            self._warned.add(rule.name)
            logger.warning(
                "rule %s depends on how a call ends, which a gateway that only asks does not tell: "
                "it does not limit such calls", rule.name,
            )  # fmt: skip


def _raw(headers: Pairs) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("utf-8", "replace")) for name, value in headers]


async def _respond(send: Send, status: int, headers: Any, body: bytes) -> None:
    if status != 204:
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
