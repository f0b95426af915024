"""Logs: lines to the standard error stream, as text or as JSON."""

from __future__ import annotations

import logging
import sys

from ..telemetry.logs import JsonLines

__all__ = ["audit", "set_up"]

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_audit = logging.getLogger("headgate.audit")


def set_up(form: str, level: str) -> None:
    """Log from now on; other libraries only when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("headgate").setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def audit(action: str, who: str, outcome: str, **more: object) -> None:
    """One line for something an administrator did, or was refused."""
    extra = {"action": action, "who": who, "outcome": outcome, **more}
    told = " ".join(f"{name}={str(value)!r}" for name, value in more.items())
    line = f"{action} by {who}: {outcome} {told}".rstrip()
    _audit.info("%s", line.encode("ascii", "backslashreplace").decode(), extra=extra)
