"""Guard: the gate as a decorator."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import LimitExceeded
from ..held import AsyncHold, Hold
from ..limited import Limited, _Leave
from ..resilience.errors import TimeLimitExceeded
from ..resilience.flows import drive, drive_async
from ..resilience.notices import Notice
from ..verdict import Refused
from .entries import AsyncEntry, Entry
from .outer import Instead, key_of_call, surrounded

if TYPE_CHECKING:
    from ..rules.model import Otherwise, PolicyRule
    from .base import GateBase
    from .guards import Around, Guards
    from .passage import Passage

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
    _told = False
    """Whether it was said that calls cannot be told apart."""

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
        gate = self._gate

        def once(*args: Any, **kwargs: Any) -> Any:
            entry = self._guard(PLAIN, args, kwargs)
            try:
                entry.__enter__()
            except LimitExceeded as refusal:
                return Instead(self._instead(refusal, args, kwargs))
            with _Leave(entry):
                return self._made(entry, function, args, kwargs)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            guards = gate._book.guards
            if guards is None or not guards.outer:  # without the frame that `once` would be
                entry = self._guard(PLAIN, args, kwargs)
                try:
                    entry.__enter__()
                except LimitExceeded as refusal:
                    return self._instead(refusal, args, kwargs)
                with _Leave(entry):
                    return function(*args, **kwargs)
            around, alike, kept = self._around(guards, PLAIN, function, args, kwargs)
            made = once if around.retry is None else partial(around.retry.call, once)
            try:
                if around.collapse is None and around.last_good is None:
                    result = made(*args, **kwargs)
                else:
                    call = partial(made, *args, **kwargs)
                    result = drive(surrounded(around, call, alike, kept, get_ident()))
            except Exception as error:
                if around.fallback is None:
                    raise
                return self._stand_in(around.fallback, error, args, kwargs)
            return result.answer if isinstance(result, Instead) else result

        return wrapper

    def _coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        gate = self._gate

        async def once(*args: Any, **kwargs: Any) -> Any:
            entry = self._guard(AWAITED, args, kwargs)
            try:
                await entry.__aenter__()
            except LimitExceeded as refusal:
                return Instead(await _result(self._instead(refusal, args, kwargs)))
            async with _Leave(entry):
                return await function(*args, **kwargs)

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            guards = gate._book.guards
            if guards is None or not guards.outer:
                entry = self._guard(AWAITED, args, kwargs)
                try:
                    await entry.__aenter__()
                except LimitExceeded as refusal:
                    return await _result(self._instead(refusal, args, kwargs))
                async with _Leave(entry):
                    return await function(*args, **kwargs)
            around, alike, kept = self._around(guards, AWAITED, function, args, kwargs)
            made = once if around.retry is None else partial(around.retry.call_async, once)
            try:
                if around.collapse is None and around.last_good is None:
                    result = await made(*args, **kwargs)
                else:
                    from asyncio import current_task

                    call = partial(made, *args, **kwargs)
                    flow = surrounded(around, call, alike, kept, current_task())
                    result = await drive_async(flow)
            except Exception as error:
                if around.fallback is None:
                    raise
                return await _result(self._stand_in(around.fallback, error, args, kwargs))
            return result.answer if isinstance(result, Instead) else result

        return wrapper

    def _around(
        self, guards: Guards, kinds: Any, function: Any, args: Any, kwargs: Any
    ) -> tuple[Around, Any, Any]:
        """What policies do around a call, and what tells it from others: for two of the parts."""
        entry = self._guard(kinds, args, kwargs)
        facts = entry._facts()
        around = guards.around(facts)
        call = facts, function, entry._known, args, kwargs
        alike = kept = None
        try:
            if around.collapse is not None:
                alike = key_of_call(around.alike, *call)
            if around.last_good is not None:
                kept = key_of_call(around.kept_by, *call)
        except TypeError as error:  # a call is made all the same: the rules came after it
            if not self._told:
                import logging

                self._told = True
                said = "calls of %s are neither collapsed nor kept, as no 'key' says by what: %s"
                logging.getLogger("headgate").warning(said, self._resource, error)
        return around, alike, kept

    def _made(self, entry: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the function returns; in a thread of its own if a policy says so."""
        passage: Passage | None = entry.verdict.permit.passage
        if passage is None or passage.pool is None:
            return function(*args, **kwargs)
        pool, _ = passage.pool
        try:
            return pool.call(passage.moved(function), *args, **kwargs)
        except TimeLimitExceeded as late:
            if late.name == pool.name:
                self._notice("time_limit.exceeded", pool.name, late)
            raise

    def _stand_in(self, rule: PolicyRule, error: Exception, args: Any, kwargs: Any) -> Any:
        """What a policy has for a call that failed or was refused."""
        self._notice("fallback", rule.name, error)
        assert rule.fallback is not None  # or it would not have been chosen
        return self._answer(rule.fallback, args, kwargs)

    def _notice(self, kind: str, name: str, error: Exception) -> None:
        self._gate._notice(Notice(kind, name, self._gate.store.clock.now(), {"error": error}))

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


async def _result(answer: Any) -> Any:
    return await answer if inspect.iscoroutine(answer) else answer
