"""OpenTelemetry: the same numbers as instruments of a meter, and verdicts on the current span.

Counters are read when a reader collects; only times are told one by one, as histograms have to
be. Each process reports what it counted itself: adding up is the collector's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter
from opentelemetry.trace import get_current_span

from .buckets import LATENCIES, WAITS
from .counts import DEGRADED, GIVEN, PERMITS, RESULTS
from .policies import CHANGES, LIMIT, PARTS, REFUSALS, STANDING, STATES
from .report import ERRORS

if TYPE_CHECKING:
    from ..facts import Facts
    from ..verdict import Verdict
    from .watching import Telemetry

__all__ = ["instrument", "mark_span"]

PREFIX = "headgate.rate_limiting"
"""After `aspnetcore.rate_limiting`, whose names are kept where the thing is the same."""
RULE, RESULT = "headgate.rule", "headgate.result"
POLICY, PART, STATE = "headgate.policy", "headgate.part", "headgate.state"
SHOWN = tuple(result for result in RESULTS if result != "degraded")

Found = Iterable[Observation]


def instrument(
    telemetry: Telemetry, *, meter: Meter | None = None, provider: MeterProvider | None = None
) -> Meter:
    """Report what `telemetry` counts, to a meter or a provider, or to the global one."""
    meter = meter or get_meter("headgate", meter_provider=provider)

    def by_rule(place: int) -> Callable[[CallbackOptions], Found]:
        def observe(options: CallbackOptions) -> Found:
            for rule, cells in telemetry.totals(own=True).rules.items():
                if rule and (cells[place] or cells[GIVEN]):
                    yield Observation(max(0, cells[place]), {RULE: rule})

        return observe

    def requests(options: CallbackOptions) -> Found:
        for rule, cells in telemetry.totals(own=True).rules.items():
            for place, result in enumerate(RESULTS):
                if cells[place] and result in SHOWN and (rule or result == "unmatched"):
                    known = {RULE: rule} if rule else {}
                    yield Observation(cells[place], {**known, RESULT: result})

    def errors(options: CallbackOptions) -> Found:
        yield Observation(telemetry.totals(own=True).process[ERRORS])

    def by_policy(first: int, label: str, words: tuple[str, ...]) -> Callable[[Any], Found]:
        def observe(options: CallbackOptions) -> Found:
            for policy, cells in telemetry.totals(own=True).policies.items():
                for place, word in enumerate(words, first):
                    if cells[place]:
                        yield Observation(cells[place], {POLICY: policy, label: word})

        return observe

    def limits(options: CallbackOptions) -> Found:
        for policy, cells in telemetry.totals(own=True).policies.items():
            if cells[LIMIT]:
                yield Observation(cells[LIMIT], {POLICY: policy})

    def rooms(options: CallbackOptions) -> Found:
        room = telemetry.totals(own=True).room
        if room is not None:
            yield Observation(room)

    meter.create_observable_counter(
        "headgate.policy.refusals", [by_policy(REFUSALS, PART, PARTS)], "{request}",
        "Calls that policies refused, by part.",
    )  # fmt: skip
    meter.create_observable_counter(
        "headgate.breaker.transitions", [by_policy(CHANGES, STATE, STATES)], "{transition}",
        "Changes of breakers, by the new state.",
    )  # fmt: skip
    meter.create_observable_up_down_counter(
        "headgate.breaker.state", [by_policy(STANDING, STATE, STATES)], "{breaker}",
        "Breakers in each state, one for each key.",
    )  # fmt: skip
    meter.create_observable_gauge(
        "headgate.adaptive.limit", [limits], "{request}", "Calls at once that are let in."
    )
    meter.create_observable_gauge(
        "headgate.system.room", [rooms], "1", "Room of elastic limits, from 0 to 1."
    )
    meter.create_observable_counter(
        f"{PREFIX}.requests", [requests], "{request}", "Decisions by rule and result."
    )
    meter.create_observable_up_down_counter(
        f"{PREFIX}.active_request_leases", [by_rule(PERMITS)], "{request}",
        "Permits of concurrent limits held now.",
    )  # fmt: skip
    meter.create_observable_counter(
        f"{PREFIX}.degraded", [by_rule(DEGRADED)], "{request}",
        "Decisions made in place of the store.",
    )  # fmt: skip
    meter.create_observable_counter(
        "headgate.reload.errors", [errors], "{error}", "Rules that could not be loaded."
    )
    store = meter.create_histogram(
        "headgate.store.duration", "s", "Time the store took to answer.",
        explicit_bucket_boundaries_advisory=LATENCIES,
    )  # fmt: skip
    queue = meter.create_histogram(
        f"{PREFIX}.request.time_in_queue", "s", "Time calls stood in line.",
        explicit_bucket_boundaries_advisory=WAITS,
    )  # fmt: skip
    telemetry.on_asked.append(store.record)
    telemetry.on_waited.append(lambda rule, seconds: queue.record(seconds, {RULE: rule}))
    return meter


def mark_span(facts: Facts, verdict: Verdict) -> None:
    """Say on the current span what was decided: `gate.on_verdict.append(mark_span)`."""
    span = get_current_span()
    if not span.is_recording():
        return
    known: dict[str, Any] = {"headgate.allowed": verdict.allowed}
    if not verdict.allowed:
        known[RULE] = verdict.rule
        if verdict.retry_after != float("inf"):
            known["headgate.retry_after"] = verdict.retry_after
    elif verdict.exempt:
        known["headgate.exempt"] = verdict.exempt
    if verdict.shadowed:
        known["headgate.shadowed"] = verdict.shadowed
    if verdict.degraded:
        known["headgate.degraded"] = True
    span.set_attributes(known)
