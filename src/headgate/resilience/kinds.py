"""Kinds: which exceptions are meant, said as types or as a function; and arguments as a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

__all__ = ["Kinds", "key_of", "test_of"]

Kinds = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Any], bool]


def test_of(kinds: Kinds, what: str) -> Callable[[BaseException], bool]:
    """A function that tells whether an exception is meant."""
    if isinstance(kinds, type):
        kinds = (kinds,)
    elif callable(kinds):
        return kinds
    types: Any = kinds
    if not isinstance(types, tuple):
        raise TypeError(f"{what} is a type of exception, a tuple of them or a function: {kinds!r}")
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{what} has types of exceptions, and {kind!r} is none")
    return lambda error: isinstance(error, types)


def key_of(function: Any, key: Callable[..., Hashable] | None, args: Any, kwargs: Any) -> Hashable:
    """What stands for a call: the function, and its arguments or what `key` makes of them."""
    if key is not None:
        return function, key(*args, **kwargs)
    # With their types: 1, 1.0 and True are equal, and a call may answer each otherwise.
    found: tuple[Any, ...] = (function, args, *map(type, args))
    if kwargs:
        named = tuple(sorted(kwargs.items()))
        found = (*found, named, *(type(value) for _, value in named))
    try:
        hash(found)
    except TypeError:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"the arguments of {name} cannot be compared as a key; "
            "give key=, a function of them that returns text or numbers"
        ) from None
    return found
