"""Guard: the gate as a decorator."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import LimitExceeded
from ..held import AsyncHold, Hold
from ..limited import Limited, _Leave
from ..resilience.notices import Notice
from ..verdict import Refused
from .entries import AsyncEntry, Entry

if TYPE_CHECKING:
    from ..rules.model import Otherwise
    from .base import GateBase
    from .guards import Guards

__all__ = ["Guarded"]

Function = TypeVar("Function", bound=Callable[..., Any])
PLAIN, AWAITED = (Hold, None), (AsyncHold, None)
"""Which kind of entry a call wants."""


class Guarded(Limited):
    """Sends the calls of what it decorates through a gate.

    The resource is the function's name unless it is said. What else is known of a call is given
    by name, as for Facts: a value, or a function of the call's arguments.
    """

    _function_of: Any = None

    def __init__(self, gate: GateBase, resource: str | None, known: dict[str, Any]) -> None:
        front: Any = gate
        super().__init__(front)
        self._gate = gate
        self._resource = resource
        self._known = known

    def __call__(self, function: Function) -> Function:
        if isinstance(function, staticmethod | classmethod) or not callable(function):
            return super().__call__(function)  # which comes back for what they hold
        mine = copy.copy(self)
        mine._function_of = inspect.signature(function)
        if mine._resource is None:
            mine._resource = getattr(function, "__qualname__", repr(function))
        try:
            return super(Guarded, mine).__call__(function)
        except TypeError as wrong:
            raise TypeError(str(wrong).replace("Limiter", "Gate")) from None

    def _guard(self, kinds: tuple[Any, Any], args: Any, kwargs: Any) -> Any:
        known = {
            name: value(*args, **kwargs) if callable(value) else value
            for name, value in self._known.items()
        }
        known.setdefault("args", self._arguments(args, kwargs))
        assert self._resource is not None
        entry: Any = AsyncEntry if kinds[0] is AsyncHold else Entry
        return entry(self._gate, self._resource, known)

    def _function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        plain, gate = super()._function(function), self._gate

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            guards = gate._book.guards
            if guards is None or not guards.outer:  # without the frame that `plain` would be
                entry = self._guard(PLAIN, args, kwargs)
                try:
                    entry.__enter__()
                except LimitExceeded as refusal:
                    return self._instead(refusal, args, kwargs)
                with _Leave(entry):
                    return function(*args, **kwargs)
            retry, stand_in = self._around(guards, PLAIN, args, kwargs)
            made = plain if retry is None else partial(retry.call, plain)
            if stand_in is None:
                return made(*args, **kwargs)
            try:
                return made(*args, **kwargs)
            except Exception as error:
                return stand_in(error, *args, **kwargs)

        return wrapper

    def _coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        plain, gate = super()._coroutine(function), self._gate

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            guards = gate._book.guards
            if guards is None or not guards.outer:
                entry = self._guard(AWAITED, args, kwargs)
                try:
                    await entry.__aenter__()
                except LimitExceeded as refusal:
                    answer = self._instead(refusal, args, kwargs)
                    return await answer if inspect.iscoroutine(answer) else answer
                async with _Leave(entry):
                    return await function(*args, **kwargs)
            retry, stand_in = self._around(guards, AWAITED, args, kwargs)
            made = plain if retry is None else partial(retry.call_async, plain)
            if stand_in is None:
                return await made(*args, **kwargs)
            try:
                return await made(*args, **kwargs)
            except Exception as error:
                answer = stand_in(error, *args, **kwargs)
                return await answer if inspect.iscoroutine(answer) else answer

        return wrapper

    def _around(self, guards: Guards, kinds: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Who makes a call again, and what stands in for it, if a policy says so."""
        facts = self._guard(kinds, args, kwargs)._facts()
        retry, fallback = guards.around(facts)
        if fallback is None:
            return retry, None

        def stand_in(error: Exception, *args: Any, **kwargs: Any) -> Any:
            notice = Notice(
                "fallback", fallback.name, self._gate.store.clock.now(), {"error": error}
            )
            self._gate._notice(notice)
            assert fallback.fallback is not None  # or it would not have been chosen
            return self._answer(fallback.fallback, args, kwargs)

        return retry, stand_in

    def _arguments(self, args: Any, kwargs: Any) -> Mapping[str, Any]:
        found = {str(place): value for place, value in enumerate(args)}
        try:
            bound = self._function_of.bind(*args, **kwargs)
        except TypeError:  # the function itself will say what is wrong
            return {**found, **kwargs}
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            kind = self._function_of.parameters[name].kind
            found.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
        return found

    def _instead(self, refusal: LimitExceeded, args: Any, kwargs: Any) -> Any:
        if not isinstance(refusal, Refused):
            raise refusal  # of a limiter somewhere inside
        otherwise = refusal.verdict.otherwise
        if otherwise is not None and otherwise.kind in ("data", "function"):
            return self._answer(otherwise, args, kwargs)
        raise refusal  # a page or another address are for whoever speaks HTTP

    def _answer(self, otherwise: Otherwise, args: Any, kwargs: Any) -> Any:
        if otherwise.kind == "data":
            return copy.deepcopy(otherwise.value)  # whoever gets it may change it
        return self._gate.function(otherwise.value)(*args, **kwargs)
