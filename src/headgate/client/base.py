"""What both clients share: requests made of calls, answers read, and the service's absence."""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from ..errors import HeadgateError, StoreError, StoreUnavailable
from ..facts import Facts
from ..keys import Key
from ..stores.client.address import read_address
from ..stores.client.http import Answer, problem_of, unavailable
from ..stores.client.link import Link
from ..stores.client.plan import LARGE
from ..stores.client.reading import key_out
from ..stores.steps import Flow, Step, Verb
from ..stores.store_breaker import CLOSED, StoreBreaker
from .verdicts import Held, Verdict, read_verdict, read_verdicts, stood_in

__all__ = ["Base", "Call", "Rejected", "Request", "release_of", "settle_of", "told_of"]

Result = TypeVar("Result")
Call = Facts | Mapping[str, Any]
"""A call: its facts, or the arguments that `check` would be given."""
WRONG = (400, 404, 405, 409, 411, 413, 414, 415, 422, 431)
APART = 0.02
BATCH = 500
"""Calls in one request."""
_UNSAID = Facts()


class Rejected(HeadgateError, ValueError):
    """The service says that a request is wrong; `status` is the one of HTTP."""

    def __init__(self, problem: str, status: int = 422) -> None:
        super().__init__(problem, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class Request(NamedTuple):
    """One request."""

    method: str
    path: str
    body: bytes | None = None
    admin: bool = False
    takes: bool = False
    """Whether it may leave something held."""


class Base:
    """The service as one client sees it.

    address   headgate://host:port, headgates:// by TLS, or headgate+unix:///path, with options
    timeout   seconds within which every call answers; above the longest `wait` of the rules
    on_error  what is answered if the service does not: "allow", "deny", or "raise"
    admin     the address of the admin listener, which `reset` needs
    token     for services that want one, if it is not in the address
    at_once   how many requests of tasks may be under way
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 1.0,
        on_error: str = "allow",
        admin: str | None = None,
        token: str | None = None,
        at_once: int = 8,
    ) -> None:
        if on_error not in ("allow", "deny", "raise"):
            raise ValueError(f"on_error is allow, deny or raise, not {on_error!r}")
        self._on_error = on_error
        self._link = _link(address, timeout, token, at_once)
        self._admin = None if admin is None else _link(admin, timeout, None)
        self._timeout = timeout
        self._breaker = StoreBreaker(time.monotonic, apart=APART)
        self._verb: Verb
        self._away = False
        self.closed = False
        _clients.add(self)

    # -- flows

    def _asking(self, request: Request) -> Flow[Answer]:
        """The answer of the service, unless that is to be left alone."""
        if self.closed:
            raise StoreError("this client is closed")
        ticket = self._breaker.enter()
        if ticket is None:
            raise StoreUnavailable(f"{self._link.place} did not answer a moment ago")
        try:
            answer: Answer = yield Step(self._verb, (request,))
            if answer.status != 200 and not (
                answer.status in WRONG and answer.kind == "application/problem+json"
            ):
                raise unavailable(self._link.place, answer)
        except StoreUnavailable as error:
            self._breaker.failed(ticket)
            self._note(error)
            raise
        except BaseException:
            self._breaker.dropped(ticket)
            raise
        self._breaker.passed(ticket)
        if self._away:
            self._note(None)
        return answer

    def _note(self, error: StoreUnavailable | None) -> None:
        """Say once that the service does not answer, and once that it does again."""
        away = self._breaker.state is not CLOSED
        if away is not self._away and away is (error is not None):
            self._away = away
            import logging

            logger = logging.getLogger("headgate")
            if away:
                logger.warning("no service (%s): on_error=%s", error, self._on_error)
            else:
                logger.warning("the service answers again: %s", self._link.place)

    def _telling(self, request: Request) -> Flow[Any]:
        """What the service says to a request that must succeed."""
        answer = yield from self._asking(request)
        if answer.status != 200:
            raise Rejected(f"{self._link.place} answered {problem_of(answer)}", answer.status)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise self._nonsense("no JSON") from None

    def _checking(self, path: str, told: dict[str, Any], key: Key) -> Flow[Verdict]:
        """A verdict, by the service or in its place."""
        request = Request("POST", path, _body(told), takes=path != "/v1/peek")
        try:
            answer = yield from self._asking(request)
            return self._read(answer, read_verdict, key)
        except StoreUnavailable:
            if self._on_error == "raise":
                raise
            return stood_in(self._on_error == "allow", key)

    def _checking_many(self, calls: Iterable[Call]) -> Flow[list[Verdict]]:
        """Independent verdicts, in as few requests as they fit."""
        found: list[Verdict] = []
        for bodies, keys in _batches(calls):
            body = b'{"calls":[%b]}' % b",".join(bodies)
            request = Request("POST", "/v1/check/batch", body, takes=True)
            try:
                answer = yield from self._asking(request)
                found += self._read(answer, read_verdicts, keys)
            except StoreUnavailable:
                if self._on_error == "raise":
                    raise
                found += [stood_in(self._on_error == "allow", key) for key in keys]
        return found

    def _read(self, answer: Answer, read: Callable[[bytes, Any], Result], key: Any) -> Result:
        if answer.status != 200:
            raise Rejected(problem_of(answer), answer.status)
        try:
            return read(answer.body, key)
        except ValueError as error:
            raise self._nonsense(error) from None

    def _ending(self, request: Request) -> Flow[bool]:
        """Whether something was still held; StoreUnavailable if nobody knows."""
        answer = yield from self._asking(request)
        if answer.status not in (200, 404):
            raise Rejected(problem_of(answer), answer.status)
        return answer.status == 200

    def _renewing(self, held: Held, ttl: float | None) -> Flow[Held | None]:
        """What is held from now on; None if it was held no longer."""
        body = _body({} if ttl is None else {"ttl": ttl})
        answer = yield from self._asking(Request("PUT", f"/v1/permits/{_safe(held)}", body))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise Rejected(problem_of(answer), answer.status)
        try:
            told = json.loads(answer.body)[held.kind]
            return Held(held.kind, str(told["token"]), float(told["lease"]))
        except (ValueError, KeyError, TypeError) as error:
            raise self._nonsense(error) from None

    def _resetting(self, facts: Facts | None, known: Mapping[str, Any]) -> Flow[list[str]]:
        """The rules under which something was forgotten."""
        told, _ = told_of(facts, known)
        found = yield from self._telling(Request("POST", "/v1/reset", _body(told), admin=True))
        return list(found["reset"])

    def _nonsense(self, error: object) -> StoreUnavailable:
        return StoreUnavailable(f"{self._link.place} answered nonsense: {error}", sent=True)

    # -- sending

    def _send(self, request: Request, deadline: float | None = None) -> Answer:
        link = self._link
        if request.admin:
            if self._admin is None:
                raise StoreError("this needs the admin listener: Client(..., admin=ADDRESS)")
            link = self._admin
        # A refusal is an answer like any other, whatever the service would say to others.
        wish = {"Prefer": "status=200"}
        return link.exchange(request.method, request.path, request.body, deadline, **wish)

    def _close(self) -> None:
        self.closed = True
        self._link.close()
        if self._admin is not None:
            self._admin.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._link.place)!r})"


def release_of(held: Held, outcome: str) -> Request:
    """The request that gives a permit back."""
    if outcome not in ("success", "failure", "ignored"):
        raise ValueError(f"an outcome is success, failure or ignored, not {outcome!r}")
    return Request("DELETE", f"/v1/permits/{_safe(held)}?outcome={outcome}")


def settle_of(held: Held, cost: int) -> Request:
    """The request that replaces what was reserved by what it has cost."""
    return Request("POST", "/v1/settle", _body({"token": held.token, "cost": cost}))


def told_of(facts: Facts | None, known: Mapping[str, Any]) -> tuple[dict[str, Any], Key]:
    """A call as JSON, and its key as far as it has one."""
    told: dict[str, Any] = {}
    if facts is not None:
        for name in Facts.__slots__:
            value = getattr(facts, name)
            if value != getattr(_UNSAID, name):
                told[name] = dict(value) if isinstance(value, Mapping) else value
    told.update((name, value) for name, value in known.items() if value is not None)
    key: Key = told.get("key", "")
    if "key" in told:
        told["key"] = key_out(key)
    return told, key


def _batches(calls: Iterable[Call]) -> list[tuple[list[bytes], list[Key]]]:
    """Calls shared out among bodies of a size that a service takes."""
    found: list[tuple[list[bytes], list[Key]]] = []
    room = 0
    for call in calls:
        told, key = told_of(call, {}) if isinstance(call, Facts) else told_of(None, call)
        body = _body(told)
        if not found or len(body) > room or len(found[-1][0]) >= BATCH:
            found.append(([], []))
            room = LARGE
        found[-1][0].append(body)
        found[-1][1].append(key)
        room -= len(body) + 1
    return found


def _body(told: Any) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()


def _safe(held: Held) -> str:
    return quote(held.token, safe="")


def _link(address: str, timeout: float, token: str | None, at_once: int = 1) -> Link:
    place, options = read_address(address)
    return Link(place, options.changed(budget=timeout, token=token), greet=False, flying=at_once)


_clients: weakref.WeakSet[Base] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._breaker.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
