"""Pool: threads of its own for one dependency, so that its hanging calls hold nobody else's.

A call that takes too long is no longer waited for. It cannot be stopped, so it goes on to hold
its thread and is counted as abandoned until it ends; a call that had not begun never will.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any

from ..clock import MICROSECONDS, Clock
from .bulkhead import whole
from .deadlines import DEADLINE, Span, clock_of, sooner, span_of, until_of
from .errors import BulkheadFull, TimeLimitExceeded
from .faces import Faces, is_async, plain_only
from .flows import Block, Flow, drive, drive_async, passing
from .forking import begin_anew
from .waiters import Waiter

__all__ = ["Pool"]

OVER = "over"


class Job:
    """One call for a thread of the pool."""

    __slots__ = ("_args", "_context", "_function", "_kwargs", "abandoned", "error", "over",
                 "result", "started", "waiter")  # fmt: skip

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._function: Any = function
        self._args = args
        self._kwargs = kwargs
        self._context: Context = copy_context()
        self.waiter: Waiter | None = None
        self.started = self.over = self.abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._context.run(self._function, *self._args, **self._kwargs)
        except BaseException as error:
            self.error = error
        self._function = self._args = self._kwargs = None  # may be large, and is not needed


class Shop:
    """The threads and what they share; apart from Pool, so that one nobody uses can go."""

    def __init__(self, size: int, queue: int, name: str) -> None:
        self.size = size
        self.queue = queue
        self.name = name
        self.changed = threading.Condition()  # reentrant: a pool may be dropped in the middle
        self.jobs: OrderedDict[Job, None] = OrderedDict()
        self.threads = self.idle = self.running = self.abandoned = 0
        self.closed = False

    def add(self, job: Job, waiter: Waiter) -> bool:
        """Have a job done; BulkheadFull if there is no thread for it and no place in the line."""
        with self.changed:
            if self.closed:
                raise RuntimeError(f"the pool {self.name!r} is closed")
            if self.running + len(self.jobs) >= self.size + self.queue:
                raise self._full()
            job.waiter = waiter
            self.jobs[job] = None
            begin = self.idle < len(self.jobs) and self.threads < self.size
            self.threads += begin
            if not begin:
                self.changed.notify()
        if begin:
            thread = threading.Thread(
                target=_work, args=(self,), name=f"headgate-{self.name or 'pool'}", daemon=True
            )
            try:
                thread.start()
            except BaseException:  # the machine has no more threads
                with self.changed:
                    self.threads -= 1
                    self.jobs.pop(job, None)
                raise
        return True

    def leave(self, job: Job) -> bool:
        """Stop waiting for a job; whether it is over."""
        with self.changed:
            if not job.over:
                job.waiter = None
                if not job.started:
                    self.jobs.pop(job, None)
                elif not job.abandoned:
                    job.abandoned = True
                    self.abandoned += 1
            return job.over

    def close(self) -> None:
        """Take no more jobs; the threads end when those they have are done."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _full(self) -> BulkheadFull:
        said = f"{self.running} calls hold all {self.size} threads"
        if self.abandoned:
            said += f" ({self.abandoned} of them nobody waits for any more)"
        if self.queue:
            said += f", and {len(self.jobs)} wait already"
        return BulkheadFull(f"{said}; the call was not made", self.name)


def _work(shop: Shop) -> None:
    """What a thread does."""
    while True:
        with shop.changed:
            while not shop.jobs:
                if shop.closed:
                    shop.threads -= 1
                    return
                shop.idle += 1
                shop.changed.wait()
                shop.idle -= 1
            job, _ = shop.jobs.popitem(last=False)
            job.started = True
            shop.running += 1
        job.run()
        with shop.changed:
            job.over = True
            shop.running -= 1
            shop.abandoned -= job.abandoned
            if job.waiter is not None:
                job.waiter.tell(OVER)
        del job  # or an idle thread would keep its last result


class Pool(Faces):
    """At most `size` calls at once, each in a thread of the pool's own; plain functions only.

    size     how many threads; they are started when they are first needed
    queue    how many calls may wait for a thread; further ones are refused: BulkheadFull
    timeout  how many seconds whoever calls waits for the result, waiting for a thread included:
             then TimeLimitExceeded. None: for ever. A deadline of whoever calls counts as well
    name     what is protected; errors and threads say it
    clock    what tells the time; a ManualClock in tests

    `call_async` makes a plain call in a thread for a task. Context variables go along.
    """

    def __init__(
        self,
        size: int,
        *,
        queue: int = 0,
        timeout: float | None = None,
        name: str = "",
        clock: Clock | None = None,
    ) -> None:
        whole(size, "size", 1)
        whole(queue, "queue", 0)
        self._clock = clock_of(clock)
        self._span = None if timeout is None else Span(span_of(timeout, "timeout"), self._clock)
        self._shop = Shop(size, queue, name)
        self._finalizer = weakref.finalize(self, self._shop.close)
        self._finalizer.atexit = False  # its threads do not keep a process alive
        begin_anew(self)

    @property
    def name(self) -> str:
        """What is protected."""
        return self._shop.name

    @property
    def in_flight(self) -> int:
        """How many calls hold a thread, those that nobody waits for any more included."""
        return self._shop.running

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return len(self._shop.jobs)

    @property
    def abandoned(self) -> int:
        """How many calls run on although nobody waits for them any more."""
        return self._shop.abandoned

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a plain function in a thread of the pool, and wait for it."""
        return drive(self._flow(function, args, kwargs))

    async def call_async(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a plain function in a thread of the pool, for a task."""
        return await drive_async(self._flow(function, args, kwargs))

    def close(self) -> None:
        """Take no more calls; those under way go on, and nobody waits for them here."""
        self._shop.close()

    def after_fork(self) -> None:
        """In a child: the threads stayed behind."""
        shop = self._shop
        self._shop = Shop(shop.size, shop.queue, shop.name)
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, self._shop.close)
        self._finalizer.atexit = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return drive(self._flow(function, args, kwargs))

        return wrapper

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        raise _coloured(function)

    def _flow(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Flow[Any]:
        if is_async(function):
            raise _coloured(function)
        plain_only(function)
        deadline, start = DEADLINE.get(), self._clock.micros()
        if self._span is not None:
            deadline = sooner((self._span.read(), self._span), deadline)
        until, clock = until_of(deadline, self._clock)
        job, shop = Job(function, args, kwargs), self._shop
        try:
            yield Block(lambda waiter: shop.add(job, waiter), clock, until)
        except BaseException:
            shop.leave(job)
            raise
        if not shop.leave(job):
            took = (self._clock.micros() - start) / MICROSECONDS
            how = "it runs on in its thread" if job.started else "it was not begun"
            said = f"no result after {took:.3g} s; {how}"
            raise TimeLimitExceeded(said, self.name)
        error, job.error = job.error, None
        if error is not None:
            try:
                raise passing(error) if isinstance(error, Exception) else error
            finally:
                del error  # it has this frame in its traceback
        return job.result

    def __repr__(self) -> str:
        shop = self._shop
        return f"<Pool {shop.name!r} {shop.running} of {shop.size}, {len(shop.jobs)} waiting>"


def _coloured(function: Any) -> TypeError:
    name = getattr(function, "__qualname__", repr(function))
    return TypeError(f"{name} is async and needs no thread; use a Bulkhead for it")
