"""Guard: the gate as a decorator."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import LimitExceeded
from ..held import AsyncHold
from ..limited import Limited
from ..verdict import Refused
from .entries import AsyncEntry, Entry

if TYPE_CHECKING:
    from .base import GateBase

__all__ = ["Guarded"]

Function = TypeVar("Function", bound=Callable[..., Any])


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
        kind = "" if otherwise is None else otherwise.kind
        if otherwise is not None and kind == "data":
            return copy.deepcopy(otherwise.value)  # whoever gets it may change it
        if otherwise is not None and kind == "function":
            return self._gate.function(otherwise.value)(*args, **kwargs)
        raise refusal  # a page or another address are for whoever speaks HTTP
