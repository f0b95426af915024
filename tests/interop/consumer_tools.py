"""What the tests of consumers share: sources that tell what was fetched, and gates."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate import Limit
from headgate.rules.model import KeyPart, Match, Rule, RuleSet


class Source:
    """An iterator that notes how often it was asked, and whether it was closed."""

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)
        self.asked = 0
        self.closed = 0

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> Any:
        self.asked += 1
        if not self.messages:
            raise StopIteration
        message = self.messages.pop(0)
        if isinstance(message, BaseException):
            raise message
        return message

    def close(self) -> None:
        self.closed += 1


class AsyncSource:
    """The same for tasks; None stands for a wait that does not end."""

    def __init__(self, *messages: Any) -> None:
        self._inner = Source(*messages)
        self.waits = False

    @property
    def closed(self) -> int:
        return self._inner.closed

    def __aiter__(self) -> AsyncSource:
        return self

    async def __anext__(self) -> Any:
        try:
            message = next(self._inner)
        except StopIteration:
            raise StopAsyncIteration from None
        if message is None:
            self.waits = True
            await asyncio.Event().wait()
        return message

    async def aclose(self) -> None:
        self._inner.close()


def rules_of(*limits: str, key: str = "", **more: Any) -> RuleSet:
    parts = tuple(KeyPart(*part.split(":")) for part in key.split())
    made = tuple(map(Limit.parse, limits))
    return RuleSet((Rule("queue", Match(resources=("orders",)), parts, made, **more),))
