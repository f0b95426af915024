"""A verdict: one target, and what was found."""

from dataclasses import dataclass

from benchmarks.rows import Row


@dataclass(frozen=True)
class Verdict:
    """One target: what it asks, what was found, whether that is enough."""

    target: str
    found: str
    reached: bool

    def __str__(self) -> str:
        return f"{'reached' if self.reached else 'MISSED '}  {self.target}: {self.found}"


def verdict(target: str, found: str, enough: bool, row: Row) -> Verdict:
    """A verdict on a row; one that gave a wrong answer reaches nothing."""
    return Verdict(
        target, found + ("" if row.right else ", and a wrong answer"), enough and row.right
    )
