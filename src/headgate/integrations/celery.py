"""Celery: limits for tasks, counted in the workers right before a task runs.

A refused task does not run. It is sent again, to come back when its limit has room, and that is
no retry of its own: `max_retries` stays untouched.
"""

from __future__ import annotations

import copy
import functools
import inspect
import random
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from celery import signals
from celery.exceptions import Ignore, Reject, Retry

from ..errors import HeadgateError
from ..facts import Facts
from ..gate import Gate, Refused
from ..rules.model import Match
from .common import Find, Finder, gate_of, known_of, pause_of

if TYPE_CHECKING:
    from celery import Celery, Task

    from ..limit import Limit

__all__ = ["ORIGIN", "TaskRefused", "limit_tasks"]

ORIGIN = "headgate-origin"
"""The message header in which a sender says who it is."""
WAYS = ("retry", "reject", "raise")
WORDS = {"task": "resource", "queue": "attribute:queue"}
"""What a key is called here, and what rules call it."""


class TaskRefused(HeadgateError):
    """A task was refused; plain texts and numbers, so that every result backend can keep it."""

    def __init__(self, text: str, rule: str = "", retry_after: float = 0.0) -> None:
        super().__init__(text, rule, retry_after)
        self.rule = rule
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


def limit_tasks(
    app: Celery,
    *limits: str | Limit,
    rules: Any = None,
    gate: Gate | None = None,
    key: str | Sequence[str] = "task",
    tasks: Sequence[str] = (),
    store: Any = None,
    name: str = "celery",
    wait: float = 0.0,
    on_refusal: str = "retry",
    jitter: float = 0.5,
    poll: float = 1.0,
    longest: float = 900.0,
    user: Finder | None = None,
    origin: Finder | None = None,
    attributes: Finder | None = None,
    priority: Finder | None = None,
    failed: Callable[[Any], bool] | None = None,
) -> Gate:
    """Limit the tasks of an app, those that it gets later too; returns the gate that does it.

    key         what limits as text count by: `task`, `queue`, `arg:user_id`, `origin`, `user`,
                `header:X`, several of them, or () for all tasks together
    tasks       the names of the tasks that limits as text are for; all, if none are named
    store       where to count: a URL, such as redis://..., for more than one process
    name        the namespace of the limits: workers that say the same count together
    wait        seconds that a task may wait inside its worker, for limits as text
    on_refusal  `retry`: it comes back after `retry_after`; `reject`: the broker has it back, to
                drop or to put aside, which needs acks_late; `raise`: it fails with TaskRefused
    jitter      up to so many seconds more, so that not all come back at once
    poll        after so many seconds it comes back if all permits are taken: nobody knows when
                one will be free
    longest     the longest countdown; brokers send what is held for too long a second time
    user, ...   functions of the task's request (task.request)
    failed      says by its result whether a task has failed, for `count: failures`
    """
    if on_refusal not in WAYS:
        raise ValueError(f"on_refusal is one of {', '.join(WAYS)}, not {on_refusal!r}")
    parts = (key,) if isinstance(key, str) else key
    words: dict[str, Any] = {"wait": wait} if wait else {}
    if tasks:
        named = (tasks,) if isinstance(tasks, str) else tuple(tasks)
        words["match"] = Match(resources=named)
    own: Gate = gate_of(
        Gate, limits, rules=rules, gate=gate, key=[WORDS.get(part, part) for part in parts],
        store=store, words=words, **({} if gate is not None else {"name": name}),
    )  # fmt: skip
    find = Find(user=user, origin=origin, attributes=attributes, priority=priority)
    _Limits(app, own, find, failed, _Refusal(on_refusal, jitter, poll, longest)).attach()
    return own


class _Refusal:
    """What becomes of a refused task."""

    def __init__(self, way: str, jitter: float, poll: float, longest: float) -> None:
        self._way = way
        self._jitter = jitter
        self._poll = poll
        self._longest = longest

    def __call__(self, task: Task, refused: Refused) -> NoReturn:
        verdict = refused.verdict
        told = TaskRefused(f"{task.name}: {refused}", verdict.rule, verdict.retry_after)
        if self._way == "reject":
            raise Reject(told, requeue=False) from refused
        pause = pause_of(verdict, self._poll)
        # An eager task would be sent again at once, over and over.
        if self._way == "raise" or pause is None or task.request.is_eager:
            raise told from refused
        countdown = min(pause, self._longest) + random.uniform(0, self._jitter)
        again = task.signature_from_request(
            task.request, countdown=countdown, retries=task.request.retries
        )
        try:
            again.apply_async()
        except Exception as error:
            if task.acks_late:  # the broker still has it
                raise Reject(error, requeue=True) from error
            raise
        raise Retry(exc=told, when=countdown, sig=again) from refused


class _Limits:
    """The limits of an app's tasks."""

    def __init__(
        self,
        app: Celery,
        gate: Gate,
        find: Find,
        failed: Callable[[Any], bool] | None,
        refuse: _Refusal,
    ) -> None:
        self._app = app
        self._gate = gate
        self._find = find
        self._failed = failed
        self._refuse = refuse
        self._limited: weakref.WeakSet[Any] = weakref.WeakSet()

    def attach(self) -> None:
        """Limit the tasks that there are, and look again once the app and its worker have all."""
        if self._app.finalized:
            self._sweep()
        self._app.on_after_finalize.connect(self._sweep, weak=False)
        signals.worker_init.connect(self._starting, weak=False)

    def _starting(self, sender: Any, **more: Any) -> None:
        if sender.app is self._app:
            self._sweep()

    def _sweep(self, **more: Any) -> None:
        for task in list(self._app.tasks.values()):
            # Those of Celery itself keep chords and results going.
            if task not in self._limited and not task.name.startswith("celery."):
                self._limited.add(task)
                task.run = self._guarded(task, task.run)

    def _guarded(self, task: Task, run: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(run)

        @functools.wraps(run)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if task.request.called_directly:  # as a plain function
                return run(*args, **kwargs)
            entry = self._gate.enter(self._facts(task, signature, args, kwargs))
            with ExitStack() as inside:
                try:
                    inside.enter_context(entry)
                except Refused as refused:
                    other = refused.verdict.otherwise
                    if other is not None and other.kind == "data":
                        return copy.deepcopy(other.value)
                    if other is not None and other.kind == "function":
                        return self._gate.function(other.value)(*args, **kwargs)
                    self._refuse(task, refused)
                try:
                    result = run(*args, **kwargs)
                except (Ignore, Reject):
                    entry.ignore()
                    raise
                if self._failed is not None and self._failed(result):
                    entry.fail()
                return result

        return guarded

    def _facts(self, task: Task, signature: inspect.Signature, args: Any, kwargs: Any) -> Facts:
        request = task.request
        headers = {
            str(word).lower(): value if isinstance(value, str) else str(value)
            for word, value in (request.headers or {}).items()
        }
        known = {"origin": headers.get(ORIGIN, ""), **known_of(self._find, request)}
        # Where queues are bound by their own names, as they are by default, this is the name.
        queue = (request.delivery_info or {}).get("routing_key") or ""
        known["attributes"] = {"queue": queue, **known.get("attributes", {})}
        by_name = _arguments(signature, args, kwargs)
        return Facts(resource=task.name, headers=headers, args=by_name, **known)


def _arguments(signature: inspect.Signature, args: Any, kwargs: Any) -> Mapping[str, Any]:
    """A call's arguments by name, and by place."""
    found = {str(place): value for place, value in enumerate(args)}
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # the task itself will say what is wrong
        return {**found, **kwargs}
    bound.apply_defaults()
    for word, value in bound.arguments.items():
        kind = signature.parameters[word].kind
        found.update(value if kind is inspect.Parameter.VAR_KEYWORD else {word: value})
    return found
