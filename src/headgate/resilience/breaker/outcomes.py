"""Outcomes: which exceptions and results are failures, which count as nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ...errors import LimitExceeded
from ..errors import BreakerOpen, BulkheadFull

__all__ = ["FAILURE", "IGNORED", "SUCCESS", "Outcomes"]

SUCCESS: Final = 0
FAILURE: Final = 1
IGNORED: Final = 2

OURS = (LimitExceeded, BreakerOpen, BulkheadFull)
"""Refusals of our own: the call never reached what it was meant for."""

Kinds = type[BaseException] | Iterable[type[BaseException]]
Judge = Callable[[Any], bool]


class Outcomes:
    """Tells what an exception or a result says about what was called.

    failures  the exceptions that are failures: types, or a function of the exception; any other
              Exception is a success, as it proves that somebody answered
    ignored   the exceptions that say nothing, whatever `failures` says: types, or a function
    failed    a function of the result: whether it is a failure

    Cancellation, and what else is no Exception, is ignored; and so is a refusal of our own
    further in (a limit, a full bulkhead, another breaker), which never reached what is called.
    """

    __slots__ = ("_failures", "_ignored", "failed")

    def __init__(
        self,
        failures: Kinds | Judge = Exception,
        ignored: Kinds | Judge = (),
        failed: Judge | None = None,
    ) -> None:
        self._failures = _judge_of(failures, "failures")
        self._ignored = _judge_of(ignored, "ignored")
        if failed is not None and not callable(failed):
            raise TypeError(f"failed is a function of a result, not {type(failed).__name__}")
        self.failed = failed

    def of_error(self, error: BaseException) -> int:
        """What an exception is."""
        if not isinstance(error, Exception) or isinstance(error, OURS) or self._ignored(error):
            return IGNORED
        return FAILURE if self._failures(error) else SUCCESS

    def of_result(self, result: Any) -> int:
        """What a result is."""
        return FAILURE if self.failed is not None and self.failed(result) else SUCCESS


def _judge_of(kinds: Any, what: str) -> Callable[[BaseException], bool]:
    """A function of an exception, made of types where they were given."""
    if isinstance(kinds, type):
        kinds = (kinds,)
    elif callable(kinds):
        return kinds  # type: ignore[no-any-return] # what it returns is taken for its truth
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise TypeError(f"{what} are types of exceptions or a function, not {kinds!r}")
    types = tuple(kinds)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{what} are types of exceptions, and {kind!r} is none")
    return lambda error: isinstance(error, types)
