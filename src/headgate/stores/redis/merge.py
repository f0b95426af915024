"""Merging: single takes of one limit that travel together become one script call.

The script takes them one after the other, so each gets exactly the decision it would have got
alone; a key that is asked for several times is read and written once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from .link.calls import AnyCall, Call, Raw, unpacked
from .link.gathering import LONG, MOST, SIZE

__all__ = ["merged", "merging", "split"]

Places = list[list[int]]
"""For each call that is sent, which of the original calls it stands for, in reply order."""


def merged(calls: Sequence[AnyCall]) -> tuple[list[AnyCall], Places]:
    """Fewer calls with the same effect, and whom each of them answers."""
    alike: dict[Any, list[int]] = {}
    sent: list[AnyCall] = []
    places: Places = []
    takes: dict[int, Call] = {}
    known: dict[Any, Any] = {}
    for number, call in enumerate(calls):
        take: Any = _apart(call, known) if isinstance(call, Raw) else call
        if take.__class__ is Call and len(take.keys) == 1 and take.script.name[:4] == "take":
            takes[number] = take
            # Prepared takes share their arguments, so the same ones are the same object.
            alike.setdefault((take.script.sha, id(take.args)), []).append(number)
        else:
            sent.append(call)
            places.append([number])
    for numbers in alike.values():
        for start in range(0, len(numbers), MOST):
            _add(takes, numbers[start : start + MOST], sent, places)
    return sent, places


def _apart(raw: Raw, known: dict[Any, Any]) -> Call | None:
    """A packed call taken apart; equal arguments become the same ones."""
    call = unpacked(raw)
    if call is None:
        return None
    return call._replace(args=known.setdefault(tuple(call.args), call.args))


def _add(takes: dict[int, Call], numbers: list[int], sent: list[AnyCall], places: Places) -> None:
    first = takes[numbers[0]]
    if len(numbers) == 1:
        sent.append(first)
        places.append(numbers)
        return
    by_key: dict[bytes, list[int]] = {}
    for number in numbers:
        by_key.setdefault(takes[number].keys[0], []).append(number)
    counts = [len(same) for same in by_key.values()]
    args = (*first.args, struct.pack(f"<{len(counts)}I", *counts))
    sent.append(Call(first.script, tuple(by_key), args))
    places.append([number for same in by_key.values() for number in same])


def merging(calls: list[AnyCall]) -> tuple[Sequence[AnyCall], Callable[[list[Any]], list[Any]]]:
    """Fewer calls, and how their replies become replies to all of them."""
    sent, places = merged(calls)
    count = len(calls)

    def apart(replies: list[Any]) -> list[Any]:
        found: list[Any] = [None] * count
        for reply, numbers in zip(replies, places, strict=True):
            for number, answer in zip(numbers, split(reply, len(numbers)), strict=True):
                found[number] = answer
        return found

    return sent, apart


def split(reply: Any, count: int) -> list[Any]:
    """A reply taken apart, for each of the takes it answers.

    A script that cannot answer all of its keys the short way has done nothing: each is told to
    ask at length.
    """
    if count == 1:
        return [reply]
    if isinstance(reply, Exception):
        return [reply] * count
    if not isinstance(reply, bytes):
        return [[LONG]] * count
    return [reply[start : start + SIZE] for start in range(0, len(reply), SIZE)]
