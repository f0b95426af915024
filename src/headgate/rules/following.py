"""Following: rules that change while the program runs, watched by a thread of their own.

A broken update keeps the last good rules, is said once in the log, and is counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Self

from ..errors import HeadgateError, RulesError
from .model import RuleSet
from .reading import digest_of, read_rules

__all__ = ["Name", "Read", "Source", "counted"]

Name = str | os.PathLike[str]
Read = Callable[..., Any]
"""Reads a text: `read(text, name=name)`; `read_either` is one, `read_envoy` another.
What it makes has `rules` or else no number of them is known."""
_chance = random.SystemRandom()  # a thread of ours leaves the program's own sequence alone


class Source:
    """What all sources share: the thread, the last good rules, and what can be said of them."""

    kind = ""
    every = 0.25
    """Seconds between two looks."""

    def __init__(self, name: str, read: Read = read_rules, status_file: Name | None = None) -> None:
        self.name = name
        self.status_file = status_file
        """Where the status is written whenever it changes, for `headgate rules status`."""
        self.on_rules: Callable[[Any], object] | None = None
        """Called with new rules; if it raises, the rules before stay."""
        self.on_error: Callable[[Exception], object] | None = None
        self.rules: Any = None
        """The last good rules."""
        self._read = read
        self._digest = ""
        self._bad = ""  # the digest of the text that was refused last, and what was said of it
        self._bad_error = ""
        self._again = False  # whether rules are handed over though they are the same
        self._loaded_at: float | None = None
        self._last_error = ""
        self._error_at: float | None = None
        self._errors = 0
        self._updates = 0
        self._started = False
        self._lock = threading.RLock()
        self._renew()

    def _renew(self) -> None:
        """What a thread needs to follow, and none that does."""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, *, required: bool = True) -> Any:
        """Read the rules once, follow them from now on, and return them.

        If they cannot be read, that is raised; unless they are not required: then the source
        begins with no rules at all and takes them as soon as they are there.
        """
        with self._lock:
            self.check(again=True)
            if self.rules is None and required:
                raise self._failure()
            if not self._started:
                self._started = True
                self._renew()
                _started.add(self)
                self._begin()
            return self.rules if self.rules is not None else RuleSet(source=self.name)

    def stop(self) -> None:
        """Follow them no more; the last good rules stay."""
        self._end.set()
        with self._lock:
            self._started = False
            _started.discard(self)
            thread, self._thread = self._thread, None
            self._end.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def check(self, *, again: bool = False) -> bool:
        """Look now, and say whether new rules came; what goes wrong is kept and counted."""
        with self._lock:
            try:
                text = self._fetch(again)
                return text is not None and self._take(*text)
            except Exception as error:  # whatever it is, the last good rules stay
                self._refuse(error)
                return False

    def status(self) -> dict[str, Any]:
        """What is known of the rules now in force, and of what went wrong."""
        return {
            "source": self.name,
            "kind": self.kind,
            "digest": self._digest,
            **counted(self.rules),
            "loaded_at": self._loaded_at,
            "updates": self._updates,
            "errors": self._errors,
            "last_error": self._last_error or None,
            "error_at": self._error_at,
            "following": self._started,
        }

    def _fetch(self, again: bool) -> tuple[str | bytes, str] | None:
        """The text and its name, or None if nothing has changed since the last time."""
        raise NotImplementedError

    def _take(self, text: str | bytes, name: str) -> bool:
        digest = digest_of(text)
        if digest == self._digest and not self._again:
            self._bad = ""  # what was wrong has been taken back
            self._recover()
            return False
        if digest == self._bad and not self._again:
            self._recover()
            return False
        self._bad, self._again = digest, False
        try:
            rules = self._read(text, name=name)
            if self.on_rules is not None:
                self.on_rules(rules)
        except Exception as error:
            self._bad_error = str(error)
            raise
        self.rules, self._digest, self._bad = rules, digest, ""
        self._loaded_at = time.time()
        self._last_error = ""
        self._updates += 1
        count = counted(rules)["rules"]
        _say("info", "rules from %s: %s, digest %s", self.name, count, digest[:12])
        self._changed()
        return True

    def _recover(self) -> None:
        """The source can be asked; what is left is what is wrong with its text."""
        left = self._bad_error if self._bad else ""
        if left != self._last_error:
            self._last_error = left
            self._changed()

    def _changed(self) -> None:
        """Write the status down; that it cannot be written stops nobody."""
        if self.status_file is None:
            return
        path = os.fspath(self.status_file)
        held = json.dumps({**self.status(), "process": os.getpid(), "written_at": time.time()})
        try:
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
                file.write(held + "\n")
            os.replace(file.name, path)
        except OSError as error:
            _say("warning", "the status of %s cannot be written: %s", self.name, error)

    def _refuse(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if text == self._last_error:
            self._last = error
            return
        self._last, self._last_error, self._error_at = error, text, time.time()
        self._errors += 1
        kept = f"the rules of digest {self._digest[:12]} stay" if self._digest else "there are none"
        _say("warning", "rules from %s: %s; %s", self.name, text, kept)
        self._changed()
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception as second:
                _say("warning", "on_error of %s raised %r", self.name, second)

    def _failure(self) -> Exception:
        last: Exception = getattr(self, "_last", RulesError("there are no rules", self.name))
        return last if isinstance(last, HeadgateError) else RulesError(str(last), self.name)

    def _begin(self) -> None:
        name = f"headgate rules {self.name}"
        self._thread = threading.Thread(
            target=_follow, args=(weakref.ref(self), self._end), name=name, daemon=True
        )
        self._thread.start()

    def _forked(self) -> None:
        """In a child: a new thread, which hands the rules over once more.

        The parent may have been in the middle of that.
        """
        self._lock = threading.RLock()
        self._renew()
        self._again = True
        self._reset()
        self._begin()

    def _reset(self) -> None:
        """Forget what was seen last."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _follow(reference: weakref.ref[Source], end: threading.Event) -> None:
    """Look again and again, as long as somebody holds the source."""
    while True:
        source = reference()
        if source is None:
            return
        pause = source.every * _chance.uniform(0.8, 1.2)  # so that not all nodes ask at once
        del source
        if end.wait(pause):
            return
        source = reference()
        if source is None or end.is_set():
            return
        source.check()
        del source


def counted(rules: Any) -> dict[str, Any]:
    """How many rules and policies there are, and whether the machine is looked at."""
    held = getattr(rules, "rules", ())
    return {
        "rules": len(held) if hasattr(held, "__len__") else 0,
        "policies": len(getattr(rules, "policies", ())),
        "system": getattr(rules, "system", None) is not None,
    }


def _say(level: str, text: str, *values: object) -> None:
    import logging

    getattr(logging.getLogger("headgate"), level)(text, *values)


_started: weakref.WeakSet[Source] = weakref.WeakSet()


def _after_fork() -> None:
    for source in list(_started):
        with contextlib.suppress(RuntimeError):  # no thread can be started as it ends
            source._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
