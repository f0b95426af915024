"""Workers: whether this process is plainly one of several that count the same calls apart.

A limiter in memory counts for its own process. Where a server or a pool says how many workers
it runs, its word is taken, and one worker is no crowd. A limiter that was there before a fork
speaks for itself: it is a mistake once two living processes use it.

Nothing here is on the way of a call. A limiter that has to be looked at again, because the
process was forked, is sent the long way round once, and then gets its short way back. The
warning waits for that call, since a fork hook is no place for it: whoever shows warnings may
need a lock that another thread of the parent held, and the user's line is not on the stack.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .clock import ManualClock
from .errors import SeveralWorkersWarning
from .limit import Limit

__all__ = ["Crowd", "made", "pool", "server"]

ENTRY = struct.Struct("QQ")
PAGE = 1024 * ENTRY.size


class Crowd(NamedTuple):
    """What was seen, and how many there are: 1 is alone, 0 is several."""

    seen: str
    workers: int


# -- what a process can know of its like


def server() -> Crowd | None:
    """The workers of the server that runs this process, if one does."""
    return _gunicorn() or _uwsgi() or _spawned()


def pool() -> Crowd | None:
    """The several workers of the pool that runs this process, if one does."""
    process = _process()
    target = getattr(getattr(process, "_target", None), "__module__", "")
    count = 1
    if target == "concurrent.futures.process":
        calls = next(iter(process._args), None)  # holds one call more than there are workers
        count = getattr(calls, "_maxsize", 2) - 1
    elif target == "multiprocessing.pool":
        for holder in _holders():  # a forked worker runs below the pool's own methods
            if type(holder).__module__ == target:
                count = holder._processes
                break
        else:  # a spawned one has a serial number, such as SpawnPoolWorker-1:2
            serial = process.name.replace(":", "-").rpartition("-")[2]
            return _numbered("process pool", int(serial))
    elif _of_celery(process) and hasattr(process, "index"):  # its place in the pool, from 0 on
        return _numbered("celery", process.index + 1)
    return _counted("process pool", count) if count > 1 else None


def _gunicorn() -> Crowd | None:
    base = sys.modules.get("gunicorn.workers.base")
    if base is None:
        return None
    for holder in _holders():
        # By type, since a proxy may fail to say what it stands for.
        if issubclass(type(holder), base.Worker) and holder.pid == os.getpid():
            return _counted("gunicorn", holder.cfg.workers)
    return None


def _holders() -> Iterator[Any]:
    """Whose methods handle a signal here or are under way in the main thread.

    A worker of every kind is among them: one that leaves signals to an event loop runs below
    its own methods, and one that runs below greenlets handles signals itself.
    """
    import signal

    if hasattr(signal, "SIGUSR1"):
        yield getattr(signal.getsignal(signal.SIGUSR1), "__self__", None)
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        yield frame.f_locals.get("self")
        frame = frame.f_back


def _uwsgi() -> Crowd | None:
    # There only inside uWSGI; the application is loaded before the fork unless told otherwise,
    # and hooks of that fork may not be called, so the word of the master is enough.
    found = getattr(sys.modules.get("uwsgi"), "numproc", None)
    return _counted("uWSGI", found) if isinstance(found, int) else None


def _spawned() -> Crowd | None:
    """The workers of a server that starts them by multiprocessing."""
    process = _process()
    if process is None:
        return None
    config: Any = (getattr(process, "_kwargs", None) or {}).get("config")
    name = type(config).__module__.partition(".")[0]
    if name in ("uvicorn", "hypercorn"):
        # uvicorn has one worker while it watches for changes, whatever it was told.
        return _counted(name, 1 if getattr(config, "reload", False) else config.workers)
    if process.name == "granian-worker":
        place = next(iter(process._args), 1)
        return _numbered("granian", place if isinstance(place, int) else 1)
    return None


def _process() -> Any:
    """The child of multiprocessing, or of celery's form of it, that this process is."""
    found = sys.modules.get("multiprocessing.process")
    if found is None:
        return None
    process = found.current_process()
    return process if found.parent_process() is not None or _of_celery(process) else None


def _of_celery(process: object) -> bool:
    return type(process).__module__.startswith("billiard.")


def _being_prepared() -> bool:
    """Whether the main module is being imported for a child that does not know its work yet."""
    found = sys.modules.get("multiprocessing.process")
    return found is not None and hasattr(found.current_process(), "_inheriting")


def _counted(kind: str, count: int) -> Crowd:
    return Crowd(f"this process is one of {count} {kind} workers", max(1, count))


def _numbered(kind: str, place: int) -> Crowd | None:
    # The first cannot tell whether there are more, and leaves it to the others.
    return Crowd(f"this process is one of several {kind} workers", 0) if place > 1 else None


# -- what is done about it

_limiters: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By a number that none made elsewhere has, before a fork or after."""
_serial = itertools.count(1)
_page: Any = None
"""Shared by the processes of a fork: whether one has warned, then limiters and their users."""
_warned = False


def made(limiter: Any) -> None:
    """Look around for a limiter that has just been made and counts in this process."""
    if isinstance(limiter.store.clock, ManualClock):
        return  # a simulation is welcome to run in many processes
    number = os.getpid() << 32 | next(_serial)
    _limiters[number] = limiter
    found = _first(server)
    if found is not None:
        _tell(limiter, found)
    elif _process() is not None or _being_prepared():
        # The child of a pool imports the main module again, with limiters it may never use.
        _watch(limiter, number)


def _watch(limiter: Any, number: int) -> None:
    """Look around at the next use of a limiter."""
    own = vars(limiter)
    if "asks" in own:
        return
    prepared = limiter._prepared

    def asks(*args: Any, **options: Any) -> Any:
        limiter._prepared = prepared
        limiter.open()
        own.pop("asks", None)  # last, so that nobody keeps the closed door for the open one
        _used(limiter, number)
        return limiter.asks(*args, **options)

    limiter._prepared = None  # until then every way leads past here
    limiter.open()
    own["asks"] = asks


def _used(limiter: Any, number: int) -> None:
    found = _first(server, pool, lambda: _relatives(number))
    if found is not None:
        _tell(limiter, found)


def _first(*sights: Callable[[], Crowd | None]) -> Crowd | None:
    for sight in sights:
        try:
            found = sight()
        except Exception:  # what others keep may change its form, and a guess breaks nobody
            continue
        if found is not None:
            return found
    return None


def _relatives(number: int) -> Crowd | None:
    """Other living processes that use a limiter which was there before a fork."""
    if _page is None:
        return None
    here = os.getpid()
    # Processes have places side by side. Where two meet in one after all, the later overwrites
    # the earlier: a warning less, nothing worse.
    place = 1 + (here + 31 * number) % (PAGE // ENTRY.size - 1)
    ENTRY.pack_into(_page, place * ENTRY.size, number, here)
    for other, pid in ENTRY.iter_unpack(_page):  # after that, so one of two at once sees both
        if other == number and pid != here and _alive(pid):
            return Crowd(f"process {pid} uses the same limiter since a fork", 0)
    return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    try:  # one that has ended and that nobody has asked about yet still has its number
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return True


def _tell(limiter: Any, crowd: Crowd) -> None:
    """Warn, once for this process and those forked from it, at the line of the user."""
    global _warned
    if crowd.workers == 1 or _warned or (_page is not None and _page[0]):
        return
    _warned = True
    if _page is not None:
        _page[0] = 1
    frame, level = sys._getframe(), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("headgate."):
        frame, level = frame.f_back, level + 1
    warnings.warn(_text(limiter.limits[0], crowd), SeveralWorkersWarning, stacklevel=level)


def _text(limit: Limit, crowd: Crowd) -> str:
    if not crowd.workers:
        most = f"each admits '{limit}'"
    elif limit.capacity == limit.amount:
        most = f"'{limit}' admits up to {limit.amount * crowd.workers} in all"
    else:
        most = f"'{limit}' admits up to {crowd.workers} times as much in all"
    return (
        f"headgate counts in memory here, but {crowd.seen}: each counts for itself, so {most}. "
        'Limiter(..., store="zone:///run/app.zone?size=16MiB") counts for all of them. If a count '
        'for each is meant: warnings.simplefilter("ignore", headgate.SeveralWorkersWarning)'
    )


# -- forks


def _before_fork() -> None:
    global _page
    if _page is None and _limiters:
        import mmap

        with contextlib.suppress(OSError):  # too little memory is the fork's own affair
            _page = mmap.mmap(-1, PAGE)


def _after_fork() -> None:
    for found in _limiters.valuerefs():
        limiter = found()
        if limiter is not None:
            _watch(limiter, found.key)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
