"""The error tree: everything headgate raises on purpose, under one root; and its warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decision import Decision

__all__ = [
    "BadOption",
    "EvictionWarning",
    "HeadgateError",
    "LimitExceeded",
    "LimitSyntaxError",
    "NeverFits",
    "RulesError",
    "SeveralWorkersWarning",
    "StoreError",
    "StoreUnavailable",
]


class HeadgateError(Exception):
    """The root of headgate's own errors."""


class LimitExceeded(HeadgateError):
    """A call was refused; `decision` says by which limit and for how long."""

    def __init__(self, decision: Decision, key: object = "") -> None:
        super().__init__(decision, key)
        self.decision = decision
        self.key = key

    def __str__(self) -> str:
        decision = self.decision
        what = f"limit {str(decision.limit)!r} exceeded"
        where = f" for key {self.key!r}" if self.key != "" else ""
        wait = decision.retry_after
        if wait == float("inf"):
            return f"{what}{where}"
        return f"{what}{where}; retry after {wait:g} s"

    @property
    def retry_after(self) -> float:
        """Seconds until the same call could pass; infinity if never."""
        return self.decision.retry_after


class NeverFits(LimitExceeded):
    """A wait for a cost above the capacity: no amount of waiting would help."""

    def __str__(self) -> str:
        where = f" (key {self.key!r})" if self.key != "" else ""
        return f"the cost can never fit into the limit {str(self.decision.limit)!r}{where}"


class StoreError(HeadgateError):
    """A store could not be opened, could not answer, or was already closed."""


class StoreUnavailable(StoreError):
    """A store could not be asked, or did not answer in time.

    `sent` says whether the question may have been carried out all the same.
    """

    def __init__(self, problem: str, *, sent: bool = False) -> None:
        super().__init__(problem)
        self.sent = sent


class BadOption(ValueError):
    """A value that a limit cannot have; `option` is the argument it came in."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(problem)
        self.option = option


class LimitSyntaxError(HeadgateError, ValueError):
    """A limit's text could not be read; `position` is where, counted from 0."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        super().__init__(text, position, problem)
        self.text = text
        self.position = position
        self.problem = problem

    def __str__(self) -> str:
        caret = " " * self.position + "^"
        return f"{self.problem} (at position {self.position})\n    {self.text}\n    {caret}"


class RulesError(HeadgateError, ValueError):
    """A rules file could not be read; it says in which file and line, in which rule, and why.

    `more` are the errors of other rules of the same file, as far as they could be found.
    """

    def __init__(
        self,
        problem: str,
        file: str = "",
        line: int = 0,
        rule: str = "",
        more: tuple[RulesError, ...] = (),
    ) -> None:
        super().__init__(problem, file, line, rule, more)
        self.problem = problem
        self.file = file
        self.line = line
        self.rule = rule
        self.more = more

    def __str__(self) -> str:
        place = f"{self.file or 'rules'}:{self.line}" if self.line else self.file or "rules"
        rule = f"rule {self.rule!r}: " if self.rule else ""
        return f"{place}: {rule}{self.problem}"


class SeveralWorkersWarning(UserWarning):
    """A limiter counts in the memory of one process, and there are plainly several."""


class EvictionWarning(UserWarning):
    """A server that holds counters may throw them away when its memory is full."""
