"""Order: what the outer parts of a policy make of a call, and in which order; a flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .borrowed import Outcome
from .collapse import Collapse
from .fallback import Fallback
from .flows import Call, Flow, passing, real
from .last_good import LastGood
from .retry import Retry

__all__ = ["Order"]


class Order:
    """fallback( last_good( collapse( retry( ... )))), each of them if it is there."""

    fallback: Fallback | None
    last_good: LastGood | None
    collapse: Collapse | None
    retry: Retry | None

    def flow(
        self,
        function: Callable[..., Any],
        inner: Callable[..., Any],
        args: Any,
        kwargs: Any,
        who: Any,
        first: Outcome | None,
    ) -> Flow[Any]:
        """What comes after a first attempt that was not plainly good, or around all of them.

        `inner` is the function within the inner parts, `who` the thread or task that calls.
        """

        def attempts() -> Flow[Any]:
            outcome, retry = first, self.retry
            if outcome is None:
                if retry is not None and retry.budget is not None:
                    retry.budget.call()
                try:
                    outcome = Outcome(None, (yield Call(inner, args, kwargs)))
                except Exception as error:
                    outcome = Outcome(real(error))
            if retry is None:
                return outcome.give()
            if outcome.error is None and (
                retry.results is None or not retry.results(outcome.result)
            ):
                return outcome.result
            return (yield from retry.again(outcome, inner, args, kwargs))

        kept = self.last_good
        try:
            try:
                if self.collapse is None:
                    result = yield from attempts()
                else:
                    result = yield from self.collapse.steps(function, args, kwargs, attempts, who)
            except Exception as error:
                if kept is None:
                    raise
                try:
                    return kept.instead(real(error), function, args, kwargs)
                except StopIteration as end:
                    raise passing(end) from None
            if kept is not None:
                kept.keep(function, args, kwargs, result)
            return result
        except Exception as error:
            if self.fallback is None:
                raise
            return (yield from self.fallback.answer(error, args, kwargs))
