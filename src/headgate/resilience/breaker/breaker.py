"""Breaker: refuses calls to what is sick, and finds out when it is well again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from ...clock import Clock, SystemClock
from ..forking import begin_anew
from .faces import Faces
from .metrics import Metrics
from .settings import Settings
from .states import CLOSED, HALF_OPEN, OPEN, STATES, SWITCHES

if TYPE_CHECKING:
    from ..notices import Listener

__all__ = ["Breaker"]

Function = TypeVar("Function", bound=Callable[..., Any])


class Breaker(Faces):
    """A circuit breaker: `@breaker`, `with breaker:`, `breaker.call(f)`, and their async forms.

    name       what is protected; errors and events say it
    settings   a preset or other Settings; else resilience4j's, without slow calls
    clock      what tells the time; a ManualClock in tests
    state      the state it begins in
    listeners  called with each Notice: refusals, failures, slow calls, changes of state. What
               they raise is dropped
    options    single settings, by the names that Settings has
    """

    def __init__(
        self,
        name: str = "",
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        state: str = CLOSED,
        listeners: Iterable[Listener] = (),
        **options: Any,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a breaker's name is text, not {type(name).__name__}")
        if settings is not None and not isinstance(settings, Settings):
            raise TypeError(f"settings are Settings, or a preset, not {type(settings).__name__}")
        if state not in SWITCHES.values():
            known = ", ".join(repr(aim) for aim in SWITCHES.values())
            raise ValueError(f"a breaker begins as one of {known}, not {state!r}")
        self.clock = clock or SystemClock()
        self._settings = Settings(**options) if settings is None else settings.changed(options)
        super().__init__(name, self._settings, self.clock, list(listeners))
        if state != CLOSED:
            self._switch(next(word for word, aim in SWITCHES.items() if aim == state), "made so")
        begin_anew(self)

    if TYPE_CHECKING:  # a decorated function keeps its signature

        def __call__(self, function: Function) -> Function: ...

    @property
    def name(self) -> str:
        """What is protected."""
        return self._name

    @property
    def listeners(self) -> list[Listener]:
        """Who is told what happens; may be added to."""
        return self._listeners

    @property
    def settings(self) -> Settings:
        """When it trips and how it comes back."""
        return self._settings

    @property
    def state(self) -> str:
        """One of STATES."""
        if self._easy is None:  # else nothing but a call changes it
            self._looked()
        return self._machine.state

    def change(self, settings: Settings | None = None, **options: Any) -> None:
        """Go on with other settings: the state stays, the window begins anew."""
        wanted = (settings or self._settings).changed(options)
        now = self._micros()
        with self._lock:
            self._drain(now)
            self._settings = wanted
            self._machine.use(wanted, now)
            self._follow(wanted)

    # -- switches

    def open(self, why: str = "opened by hand") -> None:
        """Open it now, as if it had tripped."""
        self._switch("open", why)

    def close(self, why: str = "closed by hand") -> None:
        """Close it now, and forget what was counted."""
        self._switch("close", why)

    reset = close

    def force_open(self, why: str = "forced open") -> None:
        """Refuse every call, until it is switched again."""
        self._switch("force_open", why)

    def disable(self, why: str = "disabled") -> None:
        """Let every call pass and count none, until it is switched again."""
        self._switch("disable", why)

    def metrics_only(self, why: str = "metrics only") -> None:
        """Let every call pass and count it, and never trip, until it is switched again."""
        self._switch("metrics_only", why)

    def _switch(self, word: str, why: str) -> None:
        now = self._micros()
        with self._lock:
            self._drain(now)
            self._machine.switch(word, now, why)
            changes = self._refresh()
        self._tell(changes, "", now)

    # -- looking

    def metrics(self) -> Metrics:
        """Its numbers, as they are now."""
        now = self._micros()
        with self._lock:
            self._drain(now)
            machine = self._machine
            machine.look(now)
            if STATES[machine.state].counts:
                machine.window.roll(now)
            changes = self._refresh()
            total, failed, slow = machine.reported()
            used = machine.settings
            window = machine.window
            of_probes = (total, failed, slow) != (window.total, window.failed, window.slow)
            probing = machine.state == HALF_OPEN or (machine.state == OPEN and of_probes)
            judged = total >= (used.enough if probing else used.least)
            # Calls that go well on the short way were all drained just now.
            succeeded = self._mark + self._successes
            permitted = self._entered_count()
            passes = STATES[machine.state].passes == "all"
            wait = 0 if passes else machine.retry_after(now)
            found = Metrics(
                self._name, machine.state, machine.since / 1e6,
                permitted, succeeded, self._failures, self._slow, self._ignored, self._refused,
                max(0, permitted - succeeded - self._failures - self._ignored),
                machine.opened, total, failed, slow,
                failed / total if judged else None, slow / total if judged else None,
                None if wait is None else wait / 1e6,
            )  # fmt: skip
        self._tell(changes, "", now)
        return found

    def _looked(self) -> None:
        """Let time do what it does."""
        now = self._micros()
        with self._lock:
            self._drain(now)
            self._machine.look(now)
            changes = self._refresh()
        self._tell(changes, "", now)

    def after_fork(self) -> None:
        """In a child: whoever held the lock or probed stayed behind."""
        self._lock = Lock()
        self._machine.abandon()

    def __repr__(self) -> str:
        return f"<Breaker {self._name!r} {self._machine.state}>"
