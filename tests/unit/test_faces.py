"""Faces: what any part makes of plain functions, async ones, generators and strange callables."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from headgate.resilience import (
    AdaptiveLimiter,
    Bulkhead,
    Collapse,
    Fallback,
    LastGood,
    Policy,
    Pool,
    Retry,
    SystemGuard,
    TimeLimit,
)
from headgate.resilience.faces import Faces

PARTS: dict[str, Callable[[], Faces]] = {
    "adaptive": AdaptiveLimiter,
    "bulkhead": lambda: Bulkhead(2),
    "collapse": Collapse,
    "fallback": lambda: Fallback("instead", on=ZeroDivisionError),
    "last good": lambda: LastGood(10, on=ZeroDivisionError),
    "policy": lambda: Policy(bulkhead=2, time_limit=60),
    "policy with all": lambda: Policy(
        fallback=Fallback("instead", on=ZeroDivisionError),
        last_good=LastGood(10, on=ZeroDivisionError),
        collapse=True,
        retry=2,
    ),
    "policy with a pool": lambda: Policy(bulkhead=Pool(2)),
    "pool": lambda: Pool(2),
    "retry": lambda: Retry(2, on=ZeroDivisionError),
    "system": lambda: SystemGuard(in_flight=5),
    "time limit": lambda: TimeLimit(60),
}
every = pytest.mark.parametrize("part", PARTS.values(), ids=list(PARTS))


async def soon(word: str = "fine", *, times: int = 1) -> str:
    """Says a word."""
    await asyncio.sleep(0)
    return word * times


def numbers() -> Iterator[int]:
    yield 1


async def numbers_soon() -> AsyncIterator[int]:
    yield 1


class Soon:
    async def __call__(self, word: str) -> str:
        return await soon(word)


@every
@pytest.mark.parametrize(
    "function",
    [soon, functools.partial(soon, "x"), Soon(), AsyncMock()],
    ids=["function", "partial", "object", "mock"],
)
def test_an_async_function_is_not_called_plainly(part: Callable[[], Faces], function: Any) -> None:
    """It would be over before it has begun: guarded by nothing, and always a success."""
    with pytest.raises(TypeError, match="is async"):
        part().call(function, "x")


@every
@pytest.mark.parametrize("function", [numbers, numbers_soon])
def test_generators_are_neither_decorated_nor_called(
    part: Callable[[], Faces], function: Any
) -> None:
    with pytest.raises(TypeError, match=r"numbers.* is a generator"):
        part()(function)
    with pytest.raises(TypeError, match=r"numbers.* is a generator"):
        part().call(function)


@every
def test_a_mock_of_an_async_function_is_one(part: Callable[[], Faces]) -> None:
    mock, made = AsyncMock(return_value="fine"), part()
    try:
        decorated: Any = made(mock)
    except TypeError as error:
        assert "needs no thread" in str(error)  # noqa: PT017 # only pools say so, rightly
        return
    assert inspect.iscoroutinefunction(decorated)
    assert asyncio.run(decorated(1)) == "fine"
    mock.assert_awaited_once_with(1)


@every
def test_other_callables(part: Callable[[], Faces]) -> None:
    made = part()
    assert made.call(Mock(return_value=7)) == 7
    assert made.call(functools.partial(int, "10"), base=2) == 2
    assert made.call("a b".split) == ["a", "b"]
    assert made.call(complex, 1, 2) == 1 + 2j
    assert made.call(lambda self, function: (self, function), self=1, function=2) == (1, 2)


@every
def test_a_decorated_function_looks_as_before(part: Callable[[], Faces]) -> None:
    def plain(word: str, *, times: int = 1) -> str:
        """Says a word."""
        return word * times

    made = part()
    functions: list[Any] = [plain]
    if "ool" not in type(made).__name__ and getattr(made, "pool", None) is None:
        functions.append(soon)
    for function in functions:
        decorated: Any = made(function)
        assert decorated.__name__ == function.__name__
        assert decorated.__doc__ == "Says a word."
        assert decorated.__annotations__ == function.__annotations__
        assert inspect.signature(decorated) == inspect.signature(function)
        assert inspect.iscoroutinefunction(decorated) is inspect.iscoroutinefunction(function)
        assert decorated.__wrapped__ is function
    assert made(plain)("ab", times=2) == "abab"


@every
@pytest.mark.parametrize("decorated", [False, True])
def test_the_end_of_an_iterator_passes_as_it_is(part: Callable[[], Faces], decorated: bool) -> None:
    """A StopIteration, which generators turn into a RuntimeError; parts are made of them."""
    items = iter([1])

    def take() -> int:
        return next(items)

    made = part()
    take = made(take) if decorated else functools.partial(made.call, take)
    assert take() == 1
    for _ in range(3):
        with pytest.raises(StopIteration):
            take()


def test_the_end_of_an_iterator_can_be_answered_for_and_tried_again() -> None:
    with_end = Policy(fallback=Fallback("no more", on=StopIteration))
    assert with_end.call(next, iter([])) == "no more"
    items = iter([iter([]), iter([]), iter(["there"])])
    again = Policy(retry=Retry(3, on=StopIteration, pause=0))
    assert again.call(lambda: next(next(items))) == "there"
    words, kept = iter(["old"]), Policy(last_good=10)
    assert [kept.call(next, words) for _ in range(2)] == ["old", "old"]

    def own_error() -> None:
        raise RuntimeError("generator raised StopIteration") from StopIteration()

    with pytest.raises(RuntimeError, match="generator raised"):
        with_end.call(own_error)


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_limit": "5"}, {"bulkhead": "5"}, {"retry": "x"}, {"last_good": "x"},
        {"collapse": 5}, {"breaker": Bulkhead(1)}, {"breaker": 5}, {"bulkhead": TimeLimit(1)},
        {"time_limit": True}, {"bulkhead": 2.5},
    ],
)  # fmt: skip
def test_a_policy_says_which_part_is_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"is a"):
        Policy("shop", **wrong)


def test_a_collapse_may_be_switched_off() -> None:
    assert Policy(collapse=False).collapse is None
