"""The breaker against a plain model: the same calls, the same answers, only legal edges."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate import ManualClock
from headgate.resilience.breaker import FAILURE, IGNORED, SUCCESS, Breaker, BreakerOpen
from headgate.resilience.breaker.states import EDGES, SWITCHES
from headgate.resilience.notices import Notice

MICROS = 1_000_000


class Model:
    """A breaker as one would write it down: every call in a list, everything looked up anew."""

    def __init__(self, now: int, options: dict[str, Any]) -> None:
        self.options = options
        self.go("closed", now)

    def go(self, state: str, now: int) -> None:
        self.state = state
        self.since = now
        self.era = object()
        self.seen: list[tuple[int, bool, bool]] = []  # when, failed, slow
        self.given: dict[int, int] = {}  # probes under way, by when they are due
        self.ended: list[tuple[bool, bool]] = []

    def window(self, now: int) -> list[tuple[int, bool, bool]]:
        if "window_seconds" not in self.options:
            return self.seen[-self.options["window"] :]
        first = now // MICROS - self.options["window_seconds"] + 1
        return [call for call in self.seen if call[0] // MICROS >= first]

    def over(self, calls: list[tuple[bool, bool]], least: int) -> bool:
        if len(calls) < least:
            return False
        failed, slow = (sum(call[place] for call in calls) for place in (0, 1))
        ratio, slow_ratio = self.options["failure_ratio"], self.options.get("slow_ratio")
        return failed / len(calls) >= ratio or (
            slow_ratio is not None and slow / len(calls) >= slow_ratio
        )

    def pass_time(self, now: int) -> None:
        if self.state == "open" and now > self.since + self.options["wait"] * MICROS:
            self.go("half_open", now)
        for number, due in sorted(self.given.items()):
            if self.state == "half_open" and due <= now:
                del self.given[number]
                self.probed(failed=True, slow="slow_ratio" in self.options, now=now)
        most = self.options["half_open_for"]
        if self.state == "half_open" and most and now - self.since >= most * MICROS:
            self.go("open", now)

    def probed(self, failed: bool, slow: bool, now: int) -> None:
        self.ended.append((failed, slow))
        enough = self.options["probes"]
        if self.options["judge_early"]:
            enough = min(enough, self.options["minimum"])
        failures = sum(call[0] for call in self.ended)
        if failures >= (self.options["probe_failures"] or 99):
            self.go("open", now)
        elif len(self.ended) == enough:
            sick = self.over(self.ended, 1) or all(call[0] for call in self.ended)
            self.go("open" if sick else "closed", now)

    def admit(self, number: int, now: int) -> Any:
        self.pass_time(now)
        if self.state in ("open", "forced_open"):
            return None
        if self.state == "half_open":
            if len(self.given) + len(self.ended) >= self.options["probes"]:
                return None
            self.given[number] = now + self.options["probe_lease"] * MICROS
        return self.era

    def record(self, number: int, era: object, outcome: int, took: int, now: int) -> None:
        slow = took > self.options.get("slow_after", 10**9) * MICROS
        if era is not self.era:
            return
        if self.state == "half_open":
            if self.given.pop(number, None) is None:
                return
            if outcome != IGNORED:
                self.probed(outcome == FAILURE, slow=slow, now=now)
        elif outcome != IGNORED and self.state in ("closed", "metrics_only"):
            self.seen.append((now, outcome == FAILURE, slow))
            calls = [call[1:] for call in self.window(now)]
            if self.state == "closed" and self.over(calls, self.options["minimum"]):
                self.go("open", now)


OPTIONS = st.fixed_dictionaries(
    {
        "failure_ratio": st.sampled_from([0.1, 0.5, 0.6, 1.0]),
        "minimum": st.integers(1, 5),
        "wait": st.integers(0, 5),
        "probes": st.integers(1, 4),
        "probe_lease": st.integers(1, 6),
        "judge_early": st.booleans(),
        "probe_failures": st.sampled_from([None, None, 1, 2]),
        "half_open_for": st.sampled_from([None, None, 1, 3]),
    }
)
WINDOW = st.one_of(
    st.fixed_dictionaries({"window": st.integers(5, 12)}),
    st.fixed_dictionaries({"window_seconds": st.integers(1, 6)}),
)
SLOW: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"slow_after": st.just(1), "slow_ratio": st.sampled_from([0.4, 1.0])}),
)


class BreakerMachine(RuleBasedStateMachine):
    @initialize(options=OPTIONS, window=WINDOW, slow=SLOW)
    def make(self, options: dict[str, Any], window: dict[str, Any], slow: dict[str, Any]) -> None:
        self.clock = ManualClock(1_000_000)
        chosen = {**options, **window, **slow}
        self.breaker = Breaker("db", clock=self.clock, listeners=[self.told], **chosen)
        self.model = Model(self.clock.micros(), chosen)
        self.number = 0
        self.open: dict[int, tuple[Any, Any, int]] = {}
        self.counts = dict.fromkeys(("permitted", "refused", SUCCESS, FAILURE, IGNORED), 0)

    def told(self, notice: Notice) -> None:
        if notice.kind == "breaker.state":
            edge = notice.values["before"], notice.values["state"]
            assert edge in {(before, after) for (before, _), after in EDGES.items()}

    @rule(micros=st.one_of(st.integers(0, 3 * MICROS), st.sampled_from([MICROS, 1, 5 * MICROS])))
    def wait(self, micros: int) -> None:
        self.clock.advance(micros / MICROS)

    @rule()
    def enter(self) -> None:
        now = self.clock.micros()
        era = self.model.admit(self.number, now)
        try:
            token = self.breaker.admit()
        except BreakerOpen:
            assert era is None
            self.counts["refused"] += 1
        else:
            assert era is not None
            self.open[self.number] = token, era, now
            self.counts["permitted"] += 1
        self.number += 1

    @precondition(lambda self: self.open)
    @rule(data=st.data(), outcome=st.sampled_from([SUCCESS, SUCCESS, FAILURE, IGNORED]))
    def leave(self, data: st.DataObject, outcome: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.open)))
        token, era, started = self.open.pop(number)
        now = self.clock.micros()
        self.model.record(number, era, outcome, now - started, now)
        self.breaker.record(token, outcome)
        self.counts[outcome] += 1

    @rule(calls=st.lists(st.sampled_from("SSSSSSF"), min_size=1, max_size=20))
    def call(self, calls: list[str]) -> None:
        """Calls that take no time, on the short way where there is one."""
        for letter in calls:
            now = self.clock.micros()
            era = self.model.admit(self.number, now)
            outcome = FAILURE if letter == "F" else SUCCESS
            try:
                self.breaker.call(lambda letter=letter: 1 / (letter == "S"))
            except BreakerOpen:
                assert era is None
                self.counts["refused"] += 1
            except ZeroDivisionError:
                assert outcome == FAILURE
            if era is not None:
                self.model.record(self.number, era, outcome, 0, now)
                self.counts["permitted"] += 1
                self.counts[outcome] += 1
            self.number += 1

    @rule(switch=st.sampled_from(sorted(SWITCHES)))
    def switch(self, switch: str) -> None:
        getattr(self.breaker, switch)()
        now, aim = self.clock.micros(), SWITCHES[switch]
        if aim == self.model.state == "open":
            self.model.since = now
        elif aim != self.model.state or aim == "closed":
            self.model.go(aim, now)

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "breaker"):
            return
        now = self.clock.micros()
        self.model.pass_time(now)
        seen = self.breaker.metrics()
        assert seen.state == self.breaker.state == self.model.state
        assert seen.permitted == seen.succeeded + seen.failed + seen.ignored + seen.in_flight
        assert (seen.permitted, seen.refused, seen.succeeded, seen.failed, seen.ignored) == tuple(
            self.counts.values()
        )
        assert seen.in_flight == len(self.open)
        if seen.state == "half_open":
            assert self.breaker._machine.probing() == len(self.model.given)
            assert len(self.model.given) <= self.model.options["probes"]
        elif seen.state in ("closed", "metrics_only"):
            calls = self.model.window(now)
            assert (seen.calls, seen.failures) == (len(calls), sum(call[1] for call in calls))
            assert seen.slow_calls == sum(call[2] for call in calls)


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(stateful_step_count=60)
