"""Limited: a limiter as a decorator, for functions, generators, methods and their async forms."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from .errors import LimitExceeded
from .held import AsyncAttempt, AsyncHold, Attempt, Hold

if TYPE_CHECKING:
    from .front import Front
    from .keys import Key

__all__ = ["Limited", "Options"]

Function = TypeVar("Function", bound=Callable[..., Any])
RAISE: Any = object()


class Options(TypedDict, total=False):
    """What `limited` takes; see `Limited`."""

    key: Key | Callable[..., Key]
    cost: int | Callable[..., int]
    timeout: float | None
    priority: int
    otherwise: Any
    count: str
    failures: type[BaseException] | tuple[type[BaseException], ...]
    failed: Callable[[Any], bool] | None


class Limited:
    """Limits the calls of what it decorates.

    key        a key, or a function of the call's arguments that returns one
    cost       a cost, or a function of the call's arguments that returns one
    timeout    how many seconds a call may wait for its turn (0: not at all; None: for ever)
    priority   who goes first among those who wait
    otherwise  what a refused call answers instead of raising LimitExceeded: a function, called
               with the same arguments, or a value
    count      "all" calls, or only "failures": those that raise one of `failures`, or whose
               result `failed` calls a failure
    """

    def __init__(
        self,
        front: Front,
        *,
        key: Key | Callable[..., Key] = "",
        cost: int | Callable[..., int] = 1,
        timeout: float | None = 0.0,
        priority: int = 0,
        otherwise: Any = RAISE,
        count: str = "all",
        failures: type[BaseException] | tuple[type[BaseException], ...] = BaseException,
        failed: Callable[[Any], bool] | None = None,
    ) -> None:
        if count not in ("all", "failures"):
            raise ValueError(f"count is 'all' or 'failures', not {count!r}")
        if count == "failures":
            front.refuse_reserving("limited(count='failures')")
        self._front = front
        self._key = key
        self._cost = cost
        self._timeout = timeout
        self._priority = priority
        self._otherwise = otherwise
        self._count = count
        self._failures = failures
        self._failed = failed

    def __call__(self, function: Function) -> Function:
        if isinstance(function, staticmethod | classmethod):
            return type(function)(self(function.__func__))
        if not callable(function):
            raise TypeError(f"limited() decorates a function, not {type(function).__name__}")
        coroutine, generator = _asynchronous_kind(function)
        asynchronous, name = (
            coroutine or generator,
            getattr(function, "__qualname__", repr(function)),
        )
        if self._front.coloured and not asynchronous:
            raise TypeError(
                f"AsyncLimiter.limited decorates async functions, and {name} is "
                "a plain one; use Limiter"
            )
        if asynchronous and not self._front.coloured and self._front.store.blocking:
            raise TypeError(
                f"{name} is async, and this store would block its event loop; use AsyncLimiter"
            )
        if generator:
            wrapper = self._async_generator(function)
        elif coroutine:
            wrapper = self._coroutine(function)
        elif inspect.isgeneratorfunction(function):
            wrapper = self._generator(function)
        else:
            wrapper = self._function(function)
        return functools.wraps(function)(wrapper)  # type: ignore[return-value] # the same signature

    def _guard(self, kinds: tuple[Any, Any], args: Any, kwargs: Any) -> Any:
        """The context a call runs in."""
        key = self._key(*args, **kwargs) if callable(self._key) else self._key
        cost = self._cost(*args, **kwargs) if callable(self._cost) else self._cost
        kind = kinds[self._count == "failures"]
        return kind(self._front, key, cost, self._timeout, self._priority, 0)

    def _instead(self, refusal: LimitExceeded, args: Any, kwargs: Any) -> Any:
        """The answer of a refused call, or its exception."""
        if self._otherwise is RAISE:
            raise refusal
        return self._otherwise(*args, **kwargs) if callable(self._otherwise) else self._otherwise

    def _judge(self, held: Any, error: BaseException | None, result: Any = None) -> None:
        """Tell an attempt how it went, where that is not plain from its exception."""
        if self._count != "failures":
            return
        if error is not None:
            if not isinstance(error, self._failures):
                held.succeed()
        elif self._failed is not None and self._failed(result):
            held.fail()

    def _function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            guard = self._guard((Hold, Attempt), args, kwargs)
            try:
                held = guard.__enter__()
            except LimitExceeded as refusal:
                return self._instead(refusal, args, kwargs)
            with _Leave(guard):
                try:
                    result = function(*args, **kwargs)
                except BaseException as error:
                    self._judge(held, error)
                    raise
                self._judge(held, None, result)
                return result

        return wrapper

    def _generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            guard = self._guard((Hold, Attempt), args, kwargs)
            try:
                held = guard.__enter__()
            except LimitExceeded as refusal:
                return (yield from self._instead(refusal, args, kwargs) or ())
            with _Leave(guard):
                try:
                    result = yield from function(*args, **kwargs)
                except BaseException as error:
                    self._judge(held, error)
                    raise
                self._judge(held, None, result)
                return result

        return wrapper

    def _coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            guard = self._guard((AsyncHold, AsyncAttempt), args, kwargs)
            try:
                held = await guard.__aenter__()
            except LimitExceeded as refusal:
                answer = self._instead(refusal, args, kwargs)
                return await answer if inspect.iscoroutine(answer) else answer
            async with _Leave(guard):
                try:
                    result = await function(*args, **kwargs)
                except BaseException as error:
                    self._judge(held, error)
                    raise
                self._judge(held, None, result)
                return result

        return wrapper

    def _async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            guard = self._guard((AsyncHold, AsyncAttempt), args, kwargs)
            try:
                held = await guard.__aenter__()
            except LimitExceeded as refusal:
                async for item in _asynchronous(self._instead(refusal, args, kwargs) or ()):
                    yield item
                return
            async with _Leave(guard):
                inner = function(*args, **kwargs)
                try:
                    # As `yield from` would: what is sent or thrown in reaches the inner one.
                    sent = None
                    item = await anext(inner, RAISE)
                    while item is not RAISE:
                        try:
                            sent = yield item
                        except GeneratorExit:
                            raise
                        except BaseException as thrown:
                            item = await _next(inner.athrow(thrown))
                        else:
                            item = await _next(inner.asend(sent))
                except BaseException as error:
                    self._judge(held, error)
                    raise
                finally:
                    await inner.aclose()
                self._judge(held, None)

        return wrapper


def _asynchronous_kind(function: Any) -> tuple[bool, bool]:
    """Whether a call makes a coroutine, or an async generator; also of a callable object."""
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    if not inspect.isroutine(called):
        called = type(called).__call__
    return inspect.iscoroutinefunction(called), inspect.isasyncgenfunction(called)


class _Leave:
    """Leaves a context that was entered elsewhere."""

    def __init__(self, guard: Any) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        self._guard.__exit__(*error)

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *error: Any) -> None:
        await self._guard.__aexit__(*error)


async def _next(step: Any) -> Any:
    try:
        return await step
    except StopAsyncIteration:
        return RAISE


async def _asynchronous(items: Any) -> Any:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
