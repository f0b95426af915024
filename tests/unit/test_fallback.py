"""Fallback and LastGood: what is answered in place of a call that failed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate import ManualClock
from headgate.resilience.errors import BreakerOpen
from headgate.resilience.fallback import Fallback
from headgate.resilience.last_good import LastGood
from headgate.resilience.notices import Notice


def broken(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("broken")


async def broken_later(*args: Any) -> Any:
    raise KeyError("broken")


@pytest.mark.parametrize("value", [None, 0, "text", [], KeyError])
def test_a_value(value: Any) -> None:
    fallback = Fallback(value if value is not KeyError else (lambda *_: value))
    assert fallback.call(broken, 1) == value
    assert asyncio.run(fallback.call_async(broken_later, 1)) == value
    assert fallback.call(lambda x: x + 1, 1) == 2


def test_a_function_has_the_arguments_and_the_error_if_it_likes() -> None:
    assert Fallback(lambda x, y: (x, y)).call(broken, 1, y=2) == (1, 2)
    kind, x = Fallback(lambda error, x: (type(error), x), with_error=True).call(broken, 1)
    assert (kind, x) == (KeyError, 1)


def test_an_async_function() -> None:
    async def other(x: int) -> int:
        await asyncio.sleep(0)
        return x * 2

    assert asyncio.run(Fallback(other).call_async(broken_later, 4)) == 8
    with pytest.raises(TypeError, match="broken is a plain function, and its fallback is async"):
        Fallback(other)(broken)


def test_only_for_the_exceptions_it_is_for() -> None:
    assert Fallback(1, on=(KeyError, OSError)).call(broken) == 1
    assert Fallback(1, on=lambda error: "broken" in error.args).call(broken) == 1
    with pytest.raises(KeyError):
        Fallback(1, on=BreakerOpen).call(broken)


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_what_is_no_exception_passes(error: type[BaseException]) -> None:
    def stop() -> None:
        raise error

    with pytest.raises(error):
        Fallback(1, on=BaseException).call(stop)


def test_a_broken_fallback_shows_both_errors() -> None:
    def worse(*_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        Fallback(worse).call(broken)
    assert isinstance(raised.value.__context__, KeyError)


def test_it_tells() -> None:
    told: list[Notice] = []
    Fallback(1, name="cart", listeners=[told.append]).call(broken)
    assert [(notice.kind, notice.name) for notice in told] == [("fallback", "cart")]


def test_wrong_options() -> None:
    with pytest.raises(TypeError, match="only a function can take the error"):
        Fallback(3, with_error=True)


# -- the last good value


class Service:
    def __init__(self) -> None:
        self.up = True
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if not self.up:
            raise ConnectionError
        return (*args, self.calls)

    async def later(self, *args: Any) -> Any:
        return self(*args)


def test_the_last_good_value_stands_in() -> None:
    service = Service()
    last = LastGood(60, clock=ManualClock())
    get = last(service.__call__)
    assert get("a") == ("a", 1)
    assert get("a") == ("a", 2)  # it saves no calls
    service.up = False
    assert get("a") == ("a", 2)
    with pytest.raises(ConnectionError):
        get("b")
    service.up = True
    assert get("a") == ("a", 5)


def test_for_tasks() -> None:
    service = Service()
    last = LastGood(60)

    async def main() -> None:
        get = last(service.later)
        await get(1)
        service.up = False
        assert await get(1) == (1, 1)

    asyncio.run(main())


def test_not_when_it_is_too_old() -> None:
    clock, service, told = ManualClock(), Service(), list[Notice]()
    last = LastGood(60, clock=clock, name="prices", listeners=[told.append])
    get = last(service.__call__)
    get("a")
    service.up = False
    clock.advance(60)
    assert get("a") == ("a", 1)
    assert (told[0].kind, told[0].values["age"]) == ("last_good", 60)
    clock.advance(0.000001)
    with pytest.raises(ConnectionError):
        get("a")
    assert len(last) == 0


def test_the_size_is_bounded_and_the_least_used_goes() -> None:
    service = Service()
    last = LastGood(60, size=2)
    get = last(service.__call__)
    get("a")
    get("b")
    get("a")
    get("c")
    assert len(last) == 2
    service.up = False
    assert get("a")[0] == "a"
    with pytest.raises(ConnectionError):
        get("b")


def test_keys_good_ones_and_exceptions() -> None:
    service = Service()
    last = LastGood(60, key=lambda x, user: user, good=lambda r: r[0] != "bad", on=ConnectionError)
    get = last(service.__call__)
    get([1], user="ann")
    get("bad", user="bob")
    service.up = False
    assert get([2], user="ann") == ([1], 1)
    with pytest.raises(ConnectionError):
        get("x", user="bob")
    with pytest.raises(KeyError):
        last.call(broken, 1, user="ann")
    last.clear()
    with pytest.raises(ConnectionError):
        get([2], user="ann")


def test_functions_do_not_share_values() -> None:
    last = LastGood(60)
    assert last.call(lambda: 1) == 1
    with pytest.raises(KeyError):
        last.call(broken)


def test_arguments_that_are_no_key() -> None:
    with pytest.raises(TypeError, match="cannot be compared as a key; give key="):
        LastGood(60).call(lambda x: x, [])


@pytest.mark.parametrize("options", [{"max_age": 0}, {"max_age": 1, "size": 0}])
def test_wrong_last_good(options: Any) -> None:
    with pytest.raises(ValueError):
        LastGood(**options)
