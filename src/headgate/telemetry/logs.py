"""Logs: lines of JSON, and refusals at one line for each rule and second."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .events import event_of
from .naming import namer

if TYPE_CHECKING:
    from ..facts import Facts
    from ..verdict import Verdict
    from .naming import Namer

__all__ = ["JsonLines", "RefusalLog"]

LOGGER = "headgate.refusals"
OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; anything else was given as `extra`."""
MOST = 4096


class JsonLines(logging.Formatter):
    """One JSON object for each record: at, level, logger, message, and what it was given."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "at": _instant(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((k, v) for k, v in vars(record).items() if k not in OWN and k not in line)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # ASCII, so that no key can break a line or a terminal.
        return json.dumps(line, default=str, separators=(",", ":"))


class RefusalLog:
    """Logs refusals: for each rule one a second, with how many more there were.

    The gate's own line for every refusal is left out meanwhile.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        keys: str | Namer = "plain",
        salt: bytes = b"",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._logger = logger or logging.getLogger(LOGGER)
        self._name, self._plain = namer(keys, salt), keys == "plain"
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, list[int]] = {}
        """By rule: the second of its last line, how many were left out since, and the level."""
        self._gates: list[Any] = []

    def watch(self, gate: Any) -> RefusalLog:
        """Log what a gate refuses."""
        if not self._gates:
            logging.getLogger("headgate").addFilter(_not_each)
        self._gates.append(gate)
        gate.on_verdict.append(self.told)
        return self

    def close(self) -> None:
        """Log no more, but for what was left out."""
        for gate in self._gates:
            gate.on_verdict.remove(self.told)
        if self._gates:
            logging.getLogger("headgate").removeFilter(_not_each)
            self._gates.clear()
        self.flush(everything=True)

    def told(self, facts: Facts, verdict: Verdict) -> None:
        """The hook."""
        if verdict.allowed:
            return
        level = logging.getLevelName(verdict._rule.log_level.upper())
        if not isinstance(level, int) or not self._logger.isEnabledFor(level):
            return
        now = self._clock()
        with self._lock:
            seen = self._seen.get(verdict.rule)
            if seen is not None and seen[0] == int(now):
                seen[1] += 1
                return
            if seen is None and len(self._seen) >= MOST:
                self._seen.clear()
            self._seen[verdict.rule] = [int(now), 0, level]
        left_out = 0 if seen is None else seen[1]
        event = event_of(facts, verdict, now, self._name, self._plain)
        extra = {name: value for name, value in event.as_dict().items() if name != "at"}
        wait = "never" if event.retry_after is None else f"{event.retry_after:g} s"
        self._logger.log(
            level, "refused by rule %s, key %s, retry after %s", event.rule, event.key or "-", wait,
            extra={**extra, "suppressed": left_out},
        )  # fmt: skip

    def flush(self, *, everything: bool = False) -> None:
        """Say what was left out in seconds that are over; to be called now and then."""
        now = int(self._clock())
        with self._lock:
            due = {
                rule: seen
                for rule, seen in self._seen.items()
                if seen[1] and (everything or seen[0] < now)
            }
            for rule in due:
                del self._seen[rule]
        for rule, (_, count, level) in due.items():
            what = {"rule": rule, "result": "refused", "suppressed": count}
            self._logger.log(level, "refused by rule %s: %d more", rule, count, extra=what)


def _not_each(record: logging.LogRecord) -> bool:
    """Leaves out the gate's own line for every refusal."""
    return not (record.name == "headgate" and str(record.msg).startswith("refused by rule"))


def _instant(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
