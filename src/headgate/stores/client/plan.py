"""The planner: asks become bodies, and answers become decisions; no I/O in here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...decision import Ask, Decision
from ...errors import StoreError, StoreUnavailable
from .address import Place
from .codec import decode_decisions, encode_group, joined_asks
from .http import Answer, problem_of, unavailable

__all__ = ["LARGE", "Call", "answers", "body_of", "call_of", "pieces", "results"]

LARGE = 48 << 10
"""Bytes of a body: a service takes 64 KiB unless it is told otherwise."""
FAULTS = (400, 411, 413, 414, 415, 422, 431)
"""The request was not understood, or was too large: nothing has been done."""


class Call(NamedTuple):
    """One group of asks, encoded."""

    data: bytes
    asks: tuple[Ask, ...]

    @property
    def tokens(self) -> frozenset[int]:
        """The permits and reservations that it is about."""
        return frozenset(ask.token for ask in self.asks if ask.token)


def call_of(asks: Sequence[Ask]) -> Call:
    """A group made ready, or an error for what cannot be asked."""
    asks = tuple(asks)
    return Call(encode_group(asks), asks)


def pieces(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls shared out among bodies of a size that a service takes."""
    found: list[list[Call]] = []
    room = 0
    for call in calls:
        if not found or len(call.data) > room:
            found.append([])
            room = LARGE
        found[-1].append(call)
        room -= len(call.data) + 1
    return found


def body_of(calls: Sequence[Call]) -> bytes:
    """The body that asks for all of them."""
    return joined_asks([call.data for call in calls])


def answers(place: Place, calls: Sequence[Call], answer: Answer) -> list[Any] | None:
    """For each call its decisions, or the error that stands for them.

    None: they must be asked in smaller parts, since one of them was not understood.
    """
    if answer.status == 200:
        try:
            return list(decode_decisions(answer.body, [call.asks for call in calls]))
        except ValueError as error:
            problem: StoreError = StoreUnavailable(f"{place} answered nonsense: {error}", sent=True)
    elif answer.status in FAULTS:
        if len(calls) > 1:
            return None
        problem = StoreError(f"{place} does not understand: {problem_of(answer)}")
    else:
        problem = unavailable(place, answer)
    return [problem] * len(calls)


def results(replies: Sequence[Any]) -> list[list[Decision]]:
    """The decisions of all calls; the error if there is one."""
    errors = [reply for reply in replies if isinstance(reply, Exception)]
    if not errors:
        return list(replies)
    first = errors[0]
    if isinstance(first, StoreUnavailable) and len(replies) > 1:
        # Whatever was answered has been carried out.
        done = len(errors) < len(replies) or any(getattr(error, "sent", True) for error in errors)
        raise StoreUnavailable(str(first), sent=done)
    raise first
