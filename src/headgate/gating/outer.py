"""Outer: what policies do around a call of a function, as a flow: collapsed, kept, stood in for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from ..resilience.flows import Call, passing, real
from ..resilience.kinds import key_of

if TYPE_CHECKING:
    from ..facts import Facts
    from ..resilience.flows import Flow
    from ..rules.keys import Reader
    from .guards import Around

__all__ = ["Instead", "key_of_call", "surrounded"]

NOBODY = ("args", "priority")
"""What may be known of a call without making it another one; its arguments are compared apart."""


class Instead:
    """The answer that a refused call has: no result of it, so nothing to keep."""

    __slots__ = ("answer",)

    def __init__(self, answer: Any) -> None:
        self.answer = answer


def key_of_call(
    read: Reader | None,
    facts: Facts,
    function: Any,
    known: Mapping[str, Any],
    args: Any,
    kwargs: Any,
) -> Hashable | None:
    """What tells a call from others; None if a part of it is missing.

    Unless the policy says by what, it is all that is known of a call: its arguments, and who makes
    it, or the result of one user would be another's. A TypeError if that cannot be compared.
    """
    if read is not None:
        value = read(facts)
        return (function, value) if value else None
    who = tuple((word, _frozen(known[word])) for word in sorted(known) if word not in NOBODY)
    found = key_of(function, None, args, kwargs), who, facts.origin
    hash(found)
    return found


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((str(name), _frozen(each)) for name, each in value.items()))
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def surrounded(
    around: Around,
    call: Callable[[], Any],
    alike: Hashable | None,
    kept: Hashable | None,
    who: Any,
) -> Flow[Any]:
    """Make a call, or wait for one that is alike; keep what it gave, or give what was kept.

    alike, kept   what tells it from others, for either; None: it is like no other
    who           the thread or task that calls
    """

    def made() -> Flow[Any]:
        return (yield Call(call, (), {}))

    last_good = around.last_good if kept is not None else None
    try:
        if around.collapse is None or alike is None:
            result = yield from made()
        else:
            result = yield from around.collapse.steps(alike, (), {}, made, who)
    except Exception as error:
        if last_good is None:
            raise
        try:
            return last_good.instead(real(error), kept, (), {})
        except StopIteration as end:
            raise passing(end) from None
    if last_good is not None and not isinstance(result, Instead):
        last_good.keep(kept, (), {}, result)
    return result
