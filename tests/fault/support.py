"""What the fault tests share: forms, helper processes, and a watch on every store into a zone."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headgate
from headgate.stores.zone import ZoneStore

__all__ = [
    "FORM", "Watch", "check_form", "environment", "forked", "run_helper", "say", "why_not_watched",
]  # fmt: skip

HERE = Path(__file__).parent
FORM = "compiled" if headgate.compiled else "pure"
"""The form of this run; `make test` makes one of each."""
ROBUST = bool(headgate.compiled) and sys.platform == "linux"


def environment() -> dict[str, str]:
    """The environment of a process that finds these helpers, and the same headgate."""
    paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def check_form(form: str) -> None:
    """That this process runs a form."""
    assert bool(headgate.compiled) == (form == "compiled"), headgate.compiled


def run_helper(module: str, *arguments: object, seconds: float = 600) -> str:
    """What a helper of this package prints in a process of its own; its error if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", f"fault.{module}", FORM, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def say(found: object) -> None:
    """Tell the test what a helper has found."""
    sys.stdout.write(f"{json.dumps(found)}\n")


def forked(call: Callable[[], object]) -> int:
    """The id of a new process that makes a call and ends; in error if the call fails."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        call()
        status = 0
    except BaseException as error:
        sys.stderr.write(f"process {os.getpid()}: {error!r}\n")
        sys.stderr.flush()
    finally:
        os._exit(status)


def why_not_watched() -> str:
    """Why stores cannot be counted here; empty if they can."""
    if FORM == "pure":
        return ""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 1 << 32:
        return "store instructions are counted on Linux x86-64 only"
    return "" if _compiler() else "there is no C compiler to build the watch with"


def _compiler() -> str | None:
    named = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(named) or shutil.which("cc") or shutil.which("gcc")


@functools.cache
def _library() -> Any:
    """The watch of watch.c, built for this process."""
    compiler = _compiler()
    assert compiler is not None
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "watch.so"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(target), str(HERE / "watch.c")]
        subprocess.run(command, check=True, capture_output=True)
        library = ctypes.CDLL(str(target))
    library.watch.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long, ctypes.c_int]
    library.unwatch.restype = ctypes.c_long
    return library


class _CountedWords:
    """The words of a zone in pure Python, with a look at every store."""

    def __init__(self, words: Any, after: Callable[[], None]) -> None:
        self._words = words
        self._after = after

    def __getitem__(self, place: int) -> int:
        return int(self._words[place])

    def __setitem__(self, place: int, value: int) -> None:
        self._words[place] = value
        self._after()


class Watch:
    """Sends this process a signal right after so many stores into a zone.

    Compiled: every store instruction into the mapping counts, whoever makes it. In pure Python:
    every assignment to a word.
    """

    def __init__(self, store: ZoneStore) -> None:
        self._store: Any = store
        self._count = 0
        self._number = 0
        self._how = signal.SIGKILL

    @staticmethod
    def build() -> None:
        """Build what is needed once, before processes are forked."""
        if ROBUST:
            _library()

    def start(self, number: int, how: signal.Signals = signal.SIGKILL) -> None:
        """Send the signal `how` after store `number`."""
        zone = self._store._zone
        if ROBUST:
            whole = (ctypes.c_char * zone.size).from_buffer(zone._map)
            failed = _library().watch(ctypes.addressof(whole), zone.size, number, how)
            assert not failed, "the mapping cannot be watched"
        else:
            self._count, self._number, self._how = 0, number, how
            zone.engine.words = _CountedWords(zone.engine.words, self._stored)

    def stop(self) -> int:
        """Watch no longer; how many stores there were."""
        if ROBUST:
            return int(_library().unwatch())
        engine = self._store._zone.engine
        engine.words = engine.words._words
        return self._count

    def _stored(self) -> None:
        self._count += 1
        if self._count == self._number:
            os.kill(os.getpid(), self._how)
