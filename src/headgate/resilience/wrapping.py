"""Wrapping: a function within the parts of a policy, as one function made for just these parts.

A frame for each part would cost more than the parts do, and so would asking for each call which
parts there are. So there is one text, for plain and for async functions: a line that ends in
`#:` and words is left out unless all the words are true of what is wrapped (`!` means: is not).
Only what happens as long as all goes well is written here; anything else is the policy's.
"""

from __future__ import annotations

import linecache
import threading
from asyncio import current_task
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from .borrowed import Outcome
from .deadlines import DEADLINE
from .flows import drive, drive_async
from .timing import task_of

if TYPE_CHECKING:
    from .policy import Policy

__all__ = ["wrapped"]

TEXT = """
def wrapper(*args, **kwargs):                                       #: plain !direct
def wrapper(function, /, *args, **kwargs):                          #: plain direct
async def wrapper(*args, **kwargs):                                 #: async !direct
async def wrapper(function, /, *args, **kwargs):                    #: async direct
    who = get_ident()                                               #: collapse plain
    who = current_task()                                            #: collapse async
    inside = inner                                                  #: collapse !direct
    inside = partial(inner, function)                               #: collapse direct
    steps = flow(function, inside, args, kwargs, who, None)         #: collapse
    return drive(steps)                                             #: collapse plain
    return await drive_async(steps)                                 #: collapse async
    count()                                                         #: budget
    start = now() if listeners else 0
    token = room = lease = None
    try:
        token = enter()                                             #: breaker
        room = take(key(*args, **kwargs))                           #: keyed plain
        room = await take(key(*args, **kwargs))                     #: keyed async
        near = bulkhead.room                                        #: bulkhead !keyed
        if near.pressed:                                            #: bulkhead !keyed
            drive(line_up(near))                                    #: bulkhead !keyed plain
            await drive_async(line_up(near))                        #: bulkhead !keyed async
        else:                                                       #: bulkhead !keyed
            try:                                                    #: bulkhead !keyed
                near.free.pop()                                     #: bulkhead !keyed
            except IndexError:                                      #: bulkhead !keyed
                drive(line_up(near))                                #: bulkhead !keyed plain
                await drive_async(line_up(near))                    #: bulkhead !keyed async
        room = near                                                 #: bulkhead !keyed
        lease = limit.enter()                                       #: limit plain
        try:                                                        #: limit async
            watch = limit.local.watch                               #: limit async
            task = task_of(watch.loop)                              #: limit async
            running = watch.running                                 #: limit async
        except AttributeError:                                      #: limit async
            task = None                                             #: limit async
        if task is None or deadline() is not None:                  #: limit async
            lease = limit.begin()                                   #: limit async
            watch, task, _, before = lease                          #: limit async
            running = watch.running                                 #: limit async
        else:                                                       #: limit async
            running[task] = begun = read()                          #: limit async
            if watch.timer is None:                                 #: limit async
                watch.arm(begun)                                    #: limit async
            before = set_deadline((begun, span))                    #: limit async
            lease = watch, task, task.cancelling(), before          #: limit async
        result = function(*args, **kwargs)                          #: plain !pool
        result = pool_call(function, *args, **kwargs)               #: plain pool
        result = await function(*args, **kwargs)                    #: async
    except BaseException as error:
        raised = broken(token, room, lease, error, start)
        try:
            if raised is error and not isinstance(error, Exception):  #: outer
                raise                                               #: outer
            first = Outcome(raised)                                 #: outer
            if raised is error:                                     #: !outer
                raise                                               #: !outer
            raise raised from error                                 #: !outer
        finally:
            del raised  # its traceback has this frame
    else:
        leave_limit(lease)                                          #: limit plain
        if watch.alone:                                             #: limit async
            end(lease)                                              #: limit async
        else:                                                       #: limit async
            reset_deadline(before)                                  #: limit async
            try:                                                    #: limit async
                del running[task]                                   #: limit async
            except KeyError:                                        #: limit async
                late(lease)                                         #: limit async
        leave(room)                                                 #: keyed
        near.free.append(None)                                      #: bulkhead !keyed
        if near.pressed:                                            #: bulkhead !keyed
            near.settle()                                           #: bulkhead !keyed
        passed(token, result)                                       #: breaker
        if start:
            tell("call.passed", start)
        if not results(result):                                     #: results
            keep(function, args, kwargs, result)                    #: results kept
            return result                                           #: results
        first = Outcome(None, result)                               #: results
        keep(function, args, kwargs, result)                        #: kept !results
        return result                                               #: !results
    try:                                                            #: outer
        inside = inner                                              #: outer !direct
        inside = partial(inner, function)                           #: outer direct
        steps = flow(function, inside, args, kwargs, None, first)   #: outer
        return drive(steps)                                         #: outer plain
        return await drive_async(steps)                             #: outer async
    finally:                                                        #: outer
        del first  # its traceback has this frame                   #: outer
"""


@lru_cache(maxsize=256)
def code_for(facts: frozenset[str]) -> CodeType:
    """The code of a wrapper about which these words are true."""
    lines = []
    for line in TEXT.strip().splitlines():
        text, _, words = line.partition("#:")
        if all((word.lstrip("!") in facts) is not word.startswith("!") for word in words.split()):
            lines.append(text.rstrip())
    source = "\n".join(lines) + "\n"
    name = f"<headgate policy: {' '.join(sorted(facts))}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    return compile(source, name, "exec")


def wrapped(policy: Policy, function: Callable[..., Any] | None, asynchronous: bool) -> Any:
    """A function within all parts of a policy; without one, what calls any that it is given."""
    if policy.collapse is not None:
        facts = {"collapse", "outer"}
    else:
        facts = _inner_facts(policy)
        if policy.has_outer:
            facts |= _outer_facts(policy)
    inner = function
    if policy.has_outer:
        inner = _made(policy, function, asynchronous, _inner_facts(policy), None)
    return _made(policy, function, asynchronous, facts, inner)


def _inner_facts(policy: Policy) -> set[str]:
    parts = {
        "breaker": policy.breaker, "bulkhead": policy.bulkhead, "limit": policy.time_limit,
        "pool": policy.pool, "keyed": policy.bulkhead and policy.bulkhead.key,
    }  # fmt: skip
    return {word for word, part in parts.items() if part is not None}


def _outer_facts(policy: Policy) -> set[str]:
    retry = policy.retry
    parts = {
        "kept": policy.last_good,
        "results": retry and retry.results,
        "budget": retry and retry.budget,
    }
    return {"outer"} | {word for word, part in parts.items() if part is not None}


def _made(
    policy: Policy, function: Any, asynchronous: bool, facts: set[str], inner: Any
) -> Callable[..., Any]:
    breaker, bulkhead, limit = policy.breaker, policy.bulkhead, policy.time_limit
    names: dict[str, Any] = {
        "Outcome": Outcome, "broken": policy.broken, "current_task": current_task,
        "drive": drive, "drive_async": drive_async, "flow": policy.flow, "function": function,
        "get_ident": threading.get_ident, "inner": inner, "listeners": policy.listeners,
        "now": policy.now, "partial": partial, "task_of": task_of, "tell": policy.tell,
    }  # fmt: skip
    if breaker is not None:
        names |= {"enter": breaker.enter, "passed": breaker.passed}
    if bulkhead is not None:
        names |= {
            "bulkhead": bulkhead, "key": bulkhead.key, "line_up": bulkhead.line_up,
            "leave": bulkhead.leave,
            "take": bulkhead.enter_async if asynchronous else bulkhead.enter,
        }  # fmt: skip
    if limit is not None:
        names |= {
            "limit": limit, "leave_limit": limit.leave, "end": limit.end, "late": limit.late,
            "span": limit.span, "read": limit.span.read, "deadline": DEADLINE.get,
            "set_deadline": DEADLINE.set, "reset_deadline": DEADLINE.reset,
        }  # fmt: skip
    if policy.pool is not None:
        names["pool_call"] = policy.pool.call
    if policy.last_good is not None:
        names["keep"] = policy.last_good.keep
    if policy.retry is not None:
        names["results"] = policy.retry.results
        names["count"] = policy.retry.budget and policy.retry.budget.call
    words = {*facts, "async" if asynchronous else "plain", *(["direct"] * (function is None))}
    exec(code_for(frozenset(words)), names)
    made: Callable[..., Any] = names["wrapper"]
    return made
