"""WSGI: the gate as a middleware in front of any WSGI application.

What a call holds is given back when the server closes the body, so a body is never gathered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Unpack

from ..gating import chain
from .environs import EnvironGate, Words, pairs_of

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from ..gate import Permit
    from ..limit import Limit

__all__ = ["Ending", "RateLimitMiddleware", "apart"]


class Ending:
    """What a call holds, to be given back once its body was sent or given up, or has failed."""

    __slots__ = ("held", "outcome")

    def __init__(self, *held: Permit) -> None:
        self.held = list(held)
        self.outcome = "failure"
        """Until a response says otherwise."""

    def over(self) -> None:
        """Give everything back."""
        while self.held:
            try:
                self.held.pop().release(self.outcome)
            except Exception:  # the response stands, and what is leased comes back by itself
                logging.getLogger("headgate").exception("a permit could not be given back")

    def run(
        self, app: WSGIApplication, environ: WSGIEnvironment, start: StartResponse
    ) -> Iterable[bytes]:
        """Call an application; what is held by then comes back however its body ends."""
        try:
            body = app(environ, start)
        except BaseException as error:
            self.outcome = "failure" if isinstance(error, Exception) else "ignored"
            self.over()
            raise
        return self._watched(body, environ) if self.held else body

    def _watched(self, body: Iterable[bytes], environ: WSGIEnvironment) -> Iterable[bytes]:
        if _is_file(body, environ):
            file: Any = body
            with suppress(AttributeError, TypeError):  # servers send such a file by themselves
                file.close = _Closing(self, getattr(file, "close", None))
                return file  # type: ignore[no-any-return] # a class of the server's
        return (Listed if hasattr(body, "__len__") else Body)(self, body)


def _is_file(body: Iterable[bytes], environ: WSGIEnvironment) -> bool:
    wrapper: Any = environ.get("wsgi.file_wrapper")
    return isinstance(wrapper, type) and isinstance(body, wrapper)


def apart(app: WSGIApplication, noted: chain.Around | None = None) -> WSGIApplication:
    """An application for one call: what is noted of it holds for its body, and for nothing else.

    noted   what is around it, if that is known before it is called
    """

    def called(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        with chain.Inside(noted or chain.around.get()):
            body = app(environ, start)
            inside = chain.around.get()
        made = hasattr(body, "__len__") or _is_file(body, environ)
        return body if made else Blocks(inside, body)

    return called


class Blocks:
    """A body that is made on the way, inside of its call."""

    def __init__(self, noted: chain.Around, body: Any) -> None:
        self._noted = noted
        self._body = body
        if hasattr(body, "close"):
            self.close = body.close

    def __iter__(self) -> Iterator[bytes]:
        return chain.each(self._noted, self._body)


class _Closing:
    """Closes what an application gave, and then gives back."""

    def __init__(self, ending: Ending, close: Callable[[], object] | None) -> None:
        self._ending = ending
        self._close = close

    def __call__(self) -> None:
        try:
            if self._close is not None:
                self._close()
        finally:
            self._ending.over()


class Body:
    """The body of an application, block by block; a failure on the way is noted."""

    def __init__(self, ending: Ending, body: Any) -> None:
        self._ending = ending
        self._body = body
        self.close = _Closing(ending, getattr(body, "close", None))

    def __iter__(self) -> Iterator[bytes]:
        try:
            for block in self._body:  # noqa: UP028 # `yield from` would close it once too often
                yield block
        except Exception:
            self._ending.outcome = "failure"
            raise


class Listed(Body):
    """A body of so many blocks: of a single one servers tell the length."""

    def __len__(self) -> int:
        return len(self._body)


class RateLimitMiddleware(EnvironGate):
    """Sends calls through a gate before an application sees them.

    limits   limits as text, for all calls together, counted by `key`; or `rules=`, or `gate=`
    words    see `Words`; the functions that say who calls are given the environ, and `failed` the
             status, a number
    """

    def __init__(self, app: WSGIApplication, *limits: str | Limit, **words: Unpack[Words]) -> None:
        super().__init__(limits, **words)
        self.app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one call."""
        facts, app = self.facts(environ, environ), self.app
        if chain.wanted:
            app = apart(app, chain.entered(facts))
        verdict = self.gate.check(facts)
        if not verdict.allowed:
            answer = self.answer(facts, verdict)
            start_response(f"{answer.status} {_phrase(answer.status)}", answer.headers)
            return [b"" if facts.method == "HEAD" else answer.body]
        permit = verdict.permit
        ending = Ending(permit) if permit else Ending()

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            if permit:
                code = int(status[:3])
                ending.outcome = self.judged(code, code)
            return start_response(status, [*headers, *pairs_of(verdict)], *error)

        return ending.run(app, environ, start)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Refused"
