"""Flask: limits for a whole application, and for single routes by a decorator.

All limits of a request are asked for together, before its view runs: the route is known by then.
What is held comes back when the server closes the response; Flask's own hooks come too early for
streams, and not at all for files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from flask import Flask, Response, current_app, has_request_context, request
from werkzeug.exceptions import HTTPException, default_exceptions

from ..errors import LimitExceeded
from ..gate import Gate, Refused
from ..gating import chain
from ..limit import Limit
from ..problems import problem
from ..rules.model import RuleSet
from .environs import EnvironFacts, EnvironGate, Words, pairs_of
from .routes import Joined, Key, Own, defaults_of, tell
from .wsgi import Ending, apart

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from ..gate import Verdict

__all__ = ["RateLimit"]

View = TypeVar("View", bound=Callable[..., Any])
Marks = list[Own | None]
"""The limits of a view; None among them says that it is exempt."""
MARKS = "headgate_limits"
ENDING = "headgate.ending"


class _State(EnvironGate):
    """What the extension keeps of one application."""

    def __init__(self, limits: tuple[str | Limit, ...], words: Words) -> None:
        super().__init__(limits, **words)
        self.views: dict[Any, tuple[Marks, Gate | Joined]] = {}

    def view(self, endpoint: str, method: str) -> tuple[Marks, Gate | Joined]:
        """The limits of a view, or of one method of its class, and the gate that knows them."""
        found = self.views.get((endpoint, method))
        if found is None:
            view: Any = current_app.view_functions.get(endpoint)
            marks = [*getattr(view, MARKS, ())]
            rules = _rules(endpoint, marks)
            for name in (method.lower(), "get") if method == "HEAD" else (method.lower(),):
                handler = getattr(getattr(view, "view_class", None), name, None)
                if handler is not None:
                    own = getattr(handler, MARKS, ())
                    rules += _rules(f"{endpoint}.{name}", own, len(marks))
                    marks += own
                    break
            gate = Joined(self.gate, rules) if rules else self.gate
            found = self.views[endpoint, method] = marks, gate
        return found

    def late(self, name: str, own: Own) -> tuple[Marks, Gate | Joined]:
        """The same for limits that nobody knew of before the function was called."""
        found = self.views.get(own)
        if found is None:
            rules = RuleSet(tuple(_rules(name, [own])), defaults_of(self.gate))
            found = self.views[own] = [own], Gate(rules, self.gate.store, name=self.gate.name)
        return found


class _Call:
    """What is known of a request from its beginning to its end."""

    def __init__(self) -> None:
        # Taken out, so that another application which this one calls has an ending of its own.
        ending: Ending | None = request.environ.pop(ENDING, None)
        self.served = ending is not None
        """Whether a server has called: a request made by hand has no end."""
        self.ending = ending or Ending()
        self.verdicts: list[Verdict] = []
        self.asked: Marks = []
        self.answer: Response | None = None


class RateLimit:
    """Sends the requests of an application through a gate.

    limits   limits as text, for all requests together, counted by `key`; or `rules=`, or `gate=`;
             or nothing, where only views have limits
    words    see `Words`; who calls is said by functions of Flask's request, and `failed` is one
             of its response; `store` is also HEADGATE_STORE of the application's configuration
    """

    def __init__(
        self, app: Flask | str | Limit | None = None, *limits: str | Limit, **words: Unpack[Words]
    ) -> None:
        if isinstance(app, str | Limit):
            limits, app = (app, *limits), None
        if not limits and not words.get("rules") and not words.get("gate"):
            words["rules"] = RuleSet()
        self._limits = limits
        self._words = words
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Watch over an application; each has a gate of its own unless one was given."""
        if "headgate" in app.extensions:
            raise RuntimeError("this application has a RateLimit already")
        words = self._words.copy()
        if not words.get("gate"):
            words.setdefault("store", app.config.get("HEADGATE_STORE"))
        state = app.extensions["headgate"] = _State(self._limits, words)
        self.gate: Gate = state.gate
        app.before_request(_enter)
        app.after_request(_leave)
        app.wsgi_app = _watched(app.wsgi_app)  # type: ignore[method-assign] # as Flask's docs do
        # For LimitExceeded, so that handlers of the user's for Refused come before it.
        app.error_handler_spec[None][None].setdefault(LimitExceeded, _answer)

    def limited(
        self, *limits: str | Limit, key: Key = "ip", name: str = "", **words: Any
    ) -> Callable[[View], View]:
        """A decorator: limits of a view, beside those of the application.

        key    what to count by, or a function of the request; None from it: not limited
        name   views of one name are counted together
        words  what else a rule may say: cost, count, wait, status, shadow, otherwise, ...
        """
        own = Own(limits, key, name, words)

        def decorate(view: View) -> View:
            if isinstance(view, type) or not callable(view):
                raise TypeError(f"limited() is for functions, not for {view!r}")
            _mark(view, own)

            @wraps(view)
            def guarded(*args: Any, **kwargs: Any) -> Any:
                if not has_request_context():
                    return view(*args, **kwargs)
                if own not in _call().asked:  # something hides the mark: it is not too late
                    _ask(*_state().late(f"{view.__module__}.{view.__qualname__}", own))
                return current_app.ensure_sync(view)(*args, **kwargs)

            return guarded  # type: ignore[return-value] # the same signature

        return decorate

    def exempt(self, view: View) -> View:
        """A decorator: no limit holds for this view."""
        _mark(view, None)
        return view


def _watched(app: WSGIApplication) -> Any:
    """The application itself, below whatever else wraps it."""

    def watched(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        ending = environ[ENDING] = Ending()
        return ending.run(apart(app) if chain.wanted else app, environ, start)

    return watched


def _mark(view: Any, own: Own | None) -> None:
    """Note limits at a function; whatever wraps it shares the list, in any order."""
    marks: Marks = getattr(view, MARKS, [])
    marks.append(own)
    setattr(view, MARKS, marks)


def _rules(name: str, marks: Iterable[Own | None], first: int = 0) -> list[Any]:
    """Rules under names that no rules file has."""
    return [
        own.rule(f"route:{name}-{place + 1}" if place else f"route:{name}", place=first + place)
        for place, own in enumerate(marks)
        if own is not None
    ]


def _state() -> _State:
    state: _State | None = current_app.extensions.get("headgate")
    if state is None:
        raise RuntimeError("a view has limits, but init_app was not called with its application")
    return state


def _call() -> _Call:
    call: Any = getattr(request, "headgate", None)
    if call is None:
        call = request.headgate = _Call()  # type: ignore[attr-defined] # our own
    return call  # type: ignore[no-any-return] # as it was put there


def _facts() -> EnvironFacts:
    facts = _state().facts(request.environ, request)
    facts.resource = request.endpoint or ""
    if request.url_rule is not None:
        facts.route = request.url_rule.rule
        facts.params = {word: str(value) for word, value in (request.view_args or {}).items()}
    return facts


def _enter() -> None:
    # Where no route matched the method is anybody's word, and not worth remembering.
    method = request.method if request.endpoint else ""
    marks, gate = _state().view(request.endpoint or "", method)
    if None not in marks:
        _ask(marks, gate)
    _call().asked += marks


def _ask(marks: Marks, gate: Gate | Joined) -> None:
    facts, call = _facts(), _call()
    for place, own in enumerate(marks):
        if own is not None and callable(own.key):
            facts.args = {**facts.args, **own.args(request, place)}
    noted = chain.entered(facts) if call.served else None
    verdict = gate.check(facts)
    call.verdicts.append(verdict)
    if not verdict.allowed:
        raise Refused(verdict)
    if verdict.permit:
        call.ending.held.append(verdict.permit)
    if noted is not None:
        chain.around.set(noted)


def _answer(error: LimitExceeded) -> Any:
    """The response to a refusal, if the application has no handler for it or its status."""
    if not isinstance(error, Refused):
        raise error  # of a limiter somewhere in a view: who knows what it means there
    answer = _state().answer(_facts(), error.verdict)
    response = current_app.response_class(answer.body, answer.status, answer.headers)
    if answer.status >= 400:
        kind = default_exceptions.get(answer.status, HTTPException)
        wrong = kind(problem(error.verdict)["detail"], response)
        wrong.code, wrong.__cause__ = answer.status, error
        handled = current_app.handle_http_exception(wrong)
        if handled is not wrong:
            return handled
    _call().answer = response
    return response


def _leave(response: Response) -> Response:
    call = _call()
    if response is not call.answer:  # that one says it already
        for verdict in call.verdicts:
            tell(response.headers, pairs_of(verdict))
    if call.ending.held:
        call.ending.outcome = _state().judged(response.status_code, response)
    return response
