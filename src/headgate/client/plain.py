"""Client: a headgate service for threads and plain functions."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from typing import Any, Self

from ..errors import HeadgateError
from ..facts import Facts
from ..stores.steps import Verb, run
from .base import Base, Call, Request, release_of, settle_of, told_of
from .blocks import BEATS, Holding, Reserving
from .verdicts import Held, Verdict

__all__ = ["Client", "Hold", "Reserve"]


class Client(Base):
    """Whether calls may go ahead, asked at a headgate service.

    address   headgate://host:port, headgates:// by TLS, or headgate+unix:///path, with options
    timeout   seconds within which every call answers; above the longest `wait` of the rules
    on_error  what is answered if the service does not: "allow", "deny", or "raise"
    admin     the address of the admin listener, which `reset` needs
    """

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(address, **options)
        self._verb = Verb(self._send)
        self._keeper = Keeper(self)

    def check(self, facts: Facts | None = None, **known: Any) -> Verdict:
        """Take what a call costs, or be refused; by its facts, or by `rule` and `key`.

        `client.check(path="/login", ip="192.0.2.7")`, `client.check(rule="api", key="user:42",
        cost=5)`. What it holds from now on, if anything, is `verdict.held`.
        """
        return run(self._checking("/v1/check", *told_of(facts, known)))

    def check_many(self, calls: Iterable[Call]) -> list[Verdict]:
        """Independent verdicts, in order: of facts, or of dicts such as `check` is given."""
        return run(self._checking_many(calls))

    def peek(self, facts: Facts | None = None, **known: Any) -> Verdict:
        """Would it pass? Takes nothing."""
        return run(self._checking("/v1/peek", *told_of(facts, known)))

    def hold(self, facts: Facts | None = None, *, ttl: float | None = None, **known: Any) -> Hold:
        """A call as a block, whose permits are renewed while it lasts and then given back.

        Raises Refused on the way in. An exception inside is a failure.
        """
        return Hold(self, facts, {**known, "ttl": ttl})

    def reserve(
        self, facts: Facts | None = None, *, cost: int, ttl: float | None = None, **known: Any
    ) -> Reserve:
        """An estimated cost as a block: `with client.reserve(rule="llm", cost=900) as r:
        r.settle(742)`. Unsettled, the estimate stays; after an exception nothing does.
        """
        return Reserve(self, facts, {**known, "cost": cost, "ttl": ttl}, cost)

    def release(self, held: Held | None, outcome: str = "success") -> bool:
        """End what `verdict.held` of a check names; False if it was ended before."""
        return held is not None and run(self._ending(release_of(held, outcome)))

    def renew(self, held: Held, ttl: float | None = None) -> Held | None:
        """Let a permit live on: what is held from now on, or None if it was held no longer."""
        return run(self._renewing(held, ttl))

    def settle(self, held: Held | None, cost: int) -> bool:
        """Replace what was reserved by what it has cost; False if that was done before."""
        return held is not None and run(self._ending(settle_of(held, cost)))

    def reset(self, facts: Facts | None = None, **known: Any) -> list[str]:
        """Forget what a key has used under a rule, or a call under its rules; asks the admin."""
        return run(self._resetting(facts, known))

    def rules(self) -> dict[str, Any]:
        """The rules in force, and how they were loaded."""
        found: dict[str, Any] = run(self._telling(Request("GET", "/v1/rules")))
        return found

    def close(self) -> None:
        """Let go of every connection."""
        self._keeper.close()
        self._close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Hold(Holding[Client]):
    """A permit as a block."""

    def __enter__(self) -> Self:
        run(self._entering())
        if self.held is not None and self.held.lease is not None:
            self._client._keeper.keep(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._client._keeper.drop(self)
        _give_back(self._client, self._end(kind))


class Reserve(Reserving[Client]):
    """A reservation as a block."""

    def __enter__(self) -> Self:
        run(self._entering())
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        _give_back(self._client, self._end(kind))


def _give_back(client: Client, request: Request | None) -> None:
    if request is not None:
        with contextlib.suppress(HeadgateError):  # it comes back by itself
            run(client._ending(request))


class Keeper:
    """Renews what blocks hold; its thread runs while there is something to renew."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._due: dict[Hold, float] = {}
        self._thread: threading.Thread | None = None

    def keep(self, hold: Hold) -> None:
        """Renew it from now on."""
        if self._process != os.getpid():  # what a parent holds is the parent's to renew
            self._reset()
        with self._changed:
            self._note(hold)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="headgate-renew", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def drop(self, hold: Hold) -> None:
        """It is not held any more."""
        if self._process == os.getpid():
            with self._changed:
                self._due.pop(hold, None)
                self._changed.notify()

    def close(self) -> None:
        """Renew nothing more."""
        if self._process == os.getpid():
            with self._changed:
                self._due.clear()
                self._changed.notify()

    def _note(self, hold: Hold) -> None:
        if hold.held is not None and hold.held.lease is not None:
            self._due[hold] = time.monotonic() + hold.held.lease / BEATS

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._changed.wait(1.0)  # the next one may come soon
                    if not self._due:
                        self._thread = None
                        return
                hold, due = min(self._due.items(), key=lambda item: item[1])
                left = due - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                held = hold.held
                self._note(hold)  # again later, whatever becomes of this one
            if held is not None:
                self._renew(hold, held)

    def _renew(self, hold: Hold, held: Held) -> None:
        try:
            kept = self._client.renew(held)
        except HeadgateError:
            return
        with self._changed:
            if hold in self._due and hold.held is held:
                if kept is None:
                    hold.lost = True
                    del self._due[hold]
                else:
                    hold.held = kept
                    self._note(hold)
