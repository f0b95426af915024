"""Django REST framework: throttles that ask a gate.

    throttle_classes = [throttle("5/minute", key="user")]

A throttle knows what the middleware cannot: the user that the view's authentication found. Each
asks its store once. The framework answers a refusal in its own way, by `Throttled`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rest_framework.exceptions import Throttled
from rest_framework.throttling import BaseThrottle

from ..gate import Gate
from ..limit import Limit
from .django import at_close, facts_of
from .django_exempt import is_spared
from .django_setup import configured
from .environs import EnvironGate, pairs_of
from .routes import Key, Own, tell
from .wsgi import Ending

__all__ = ["Refusal", "Throttle", "throttle"]


class Refusal(Throttled):  # type: ignore[misc] # the framework has no types
    """A refusal by a rule with a status of its own."""

    def __init__(self, status: int, wait: float | None) -> None:
        super().__init__(wait)
        self.status_code = status


class Throttle(BaseThrottle):  # type: ignore[misc] # the framework has no types
    """Asks the gate of the settings; or, in a class that says `limits`, one for those.

    All views with the same class count together.
    """

    limits: ClassVar[str | Limit | Sequence[str | Limit]] = ()
    key: ClassVar[Key] = "ip"
    name: ClassVar[str] = ""
    """How the headers call it; else the name of the class."""
    words: ClassVar[dict[str, Any]] = {}
    """What else a rule may say: cost, count, status, shadow, ..."""
    per_view: ClassVar[bool] = False

    _own: ClassVar[Own | None] = None
    _wait: float | None = None

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        limits = (cls.limits,) if isinstance(cls.limits, str | Limit) else tuple(cls.limits)
        name = cls.name or cls.__name__
        cls._own = Own(limits, cls.key, name, cls.words) if limits else None

    def allow_request(self, request: Any, view: Any) -> bool:
        """Whether a request may go ahead; all that it costs is taken by this."""
        if is_spared(request._request, type(view)):
            return True
        way = self._way()
        facts = facts_of(way, request._request)
        facts._request = request
        if self._own is not None:
            facts.args = self._own.args(request)
        verdict = way.gate.check(facts)
        if hasattr(view, "headers"):  # the framework writes Retry-After itself
            tell(view.headers, (pair for pair in pairs_of(verdict) if pair[0] != "Retry-After"))
        if verdict.allowed:
            if verdict.permit:
                _hold(way, verdict.permit, request._request, view)
            return True
        self._wait = None if verdict.retry_after == float("inf") else verdict.retry_after
        if verdict.status != 429:
            raise Refusal(verdict.status, self._wait)
        return False

    def wait(self) -> float | None:
        """Seconds after which a refused request may pass; None if nobody knows."""
        return self._wait

    def _way(self) -> EnvironGate:
        kind = type(self)
        space = "" if kind.per_view else f"{kind.__module__}.{kind.__qualname__}"
        return configured().way(Gate, kind._own, space if kind._own is not None else "")


def throttle(*limits: str | Limit, key: Key = "ip", name: str = "", **words: Any) -> type[Throttle]:
    """A class of throttles for limits as text; each view counts for itself, unless by a name.

    key    what to count by, or a function of the request; None from it: not limited
    name   views of one name are counted together
    words  what else a rule may say: cost, count, status, shadow, ...
    """
    said = {"limits": limits, "key": key, "name": name or "limited", "words": words}
    own = {"per_view": not name, "__module__": __name__, "__qualname__": f"throttle:{name}"}
    return type("throttle", (Throttle,), {**said, **own})


def _hold(way: EnvironGate, permit: Any, request: Any, view: Any) -> None:
    """Keep a permit until the response has been sent."""
    ending = Ending(permit)
    at_close(request, ending.over)
    finalize, refused = view.finalize_response, []

    def throttled(*args: Any) -> Any:
        refused.append(True)
        return type(view).throttled(view, *args)

    def finalized(*args: Any, **kwargs: Any) -> Any:
        response = finalize(*args, **kwargs)
        # What another throttle refused is no failure of this one's.
        ending.outcome = "success" if refused else way.judged(response.status_code, response)
        return response

    view.throttled, view.finalize_response = throttled, finalized
