"""The breaker's page: its diagram and table are those of the code, its settings are all there."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from headgate.resilience import (
    Breaker,
    Bulkhead,
    Fallback,
    LastGood,
    Policy,
    Pool,
    Retry,
    SystemGuard,
    TimeLimit,
)
from headgate.resilience.breaker import STATES, Fleet, Metrics, Settings, presets
from headgate.resilience.breaker.member import Member
from headgate.resilience.breaker.states import EDGES, SWITCHES, diagram

PAGES = Path(__file__).parents[2] / "docs"
PAGE = (PAGES / "breaker.md").read_text()


def test_the_diagram_is_drawn_from_the_table() -> None:
    assert f"```mermaid\n{diagram()}```" in PAGE
    for (state, word), aim in EDGES.items():
        line = f"any --> {aim} : {word}()" if word in SWITCHES else f"{state} --> {aim} :"
        assert line in diagram()


def test_the_table_is_the_codes() -> None:
    said = {True: "yes", False: "no"}
    for name, row in STATES.items():
        assert f"| `{name}` | {row.passes} | {said[row.counts]} | {said[row.trips]} |" in PAGE


def test_every_setting_is_explained() -> None:
    for field in fields(Settings):
        assert f"`{field.name}`" in PAGE, field.name
        assert field.name in (Settings.__doc__ or ""), field.name


COMING = (PAGES / "coming-from" / "breakers.md").read_text()
NAMES = {
    "Hystrix": """
        circuitBreaker.enabled circuitBreaker.requestVolumeThreshold circuitBreaker.forceOpen
        circuitBreaker.sleepWindowInMilliseconds circuitBreaker.errorThresholdPercentage
        circuitBreaker.forceClosed metrics.rollingStats.timeInMilliseconds
        metrics.rollingStats.numBuckets metrics.healthSnapshot.intervalInMilliseconds
        metrics.rollingPercentile.enabled execution.isolation.strategy execution.timeout.enabled
        execution.isolation.thread.timeoutInMilliseconds interruptOnTimeout interruptOnCancel
        execution.isolation.semaphore.maxConcurrentRequests fallback.enabled requestLog.enabled
        fallback.isolation.semaphore.maxConcurrentRequests requestCache.enabled coreSize
        maximumSize maxQueueSize queueSizeRejectionThreshold keepAliveTimeMinutes
        allowMaximumSizeToDivergeFromCoreSize maxRequestsInBatch timerDelayInMilliseconds
        HystrixBadRequestException HystrixRuntimeException""",
    "Sentinel": """
        grade count slowRatioThreshold minRequestAmount statIntervalMs timeWindow
        DegradeException highestSystemLoad highestCpuUsage avgRt maxThread qps""",
    "Resilience4j": """
        failureRateThreshold slowCallRateThreshold slowCallDurationThreshold slidingWindowType
        slidingWindowSize minimumNumberOfCalls waitDurationInOpenState recordExceptions
        permittedNumberOfCallsInHalfOpenState maxWaitDurationInHalfOpenState ignoreExceptions
        automaticTransitionFromOpenToHalfOpenEnabled recordResult recordException ignoreException
        writableStackTraceEnabled CallNotPermittedException maxConcurrentCalls maxWaitDuration
        fairCallHandlingStrategyEnabled maxThreadPoolSize coreThreadPoolSize queueCapacity
        keepAliveDuration timeoutDuration cancelRunningFuture maxAttempts waitDuration
        intervalFunction intervalBiFunction retryOnResultPredicate retryExceptionPredicate
        retryExceptions failAfterMaxAttempts limitForPeriod limitRefreshPeriod""",
    "pybreaker": """
        fail_max reset_timeout success_threshold exclude listeners state_storage name
        throw_new_error_on_trip call call_async calling open close half_open current_state
        fail_counter CircuitBreakerError CircuitRedisStorage CircuitBreakerListener""",
    "circuitbreaker": """
        failure_threshold recovery_timeout expected_exception name fallback_function
        CircuitBreakerMonitor CircuitBreakerError""",
}


@pytest.mark.parametrize("library", NAMES)
def test_every_name_that_people_know_is_there(library: str) -> None:
    section = COMING.split(f"\n## {library}\n")[1].split("\n## ")[0]
    for name in NAMES[library].split():
        assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", section), name


def test_every_name_of_ours_that_they_are_sent_to_exists() -> None:
    parts = (
        Breaker, Bulkhead, Fallback, Fleet, LastGood, Policy, Pool, Retry, SystemGuard, TimeLimit,
        Member, *(getattr(presets, name) for name in presets.__all__),
    )  # fmt: skip
    known = {field.name for field in fields(Settings)}
    known |= {name for part in parts for name in inspect.signature(part).parameters}
    rows = [line for line in COMING.splitlines() if line.startswith("| ")]
    ours = " ".join(row.split(" | ", 1)[1] for row in rows)
    for name in re.findall(r"`(?:[^`]*?[(, ])?([a-z_]+)=", ours):
        assert name in known, name
    for name in re.findall(r"`\.?([a-z_]+)\(\)`", ours):
        assert hasattr(Breaker, name), name
    for name in re.findall(r"`metrics\(\)\.(\w+)`", ours):
        assert name in Metrics._fields
    for name in re.findall(r"\(?`([a-z0-9_]+)`,? ", ours):
        if name.startswith(("sentinel_", "resilience4j", "hystrix")):
            assert name in presets.__all__, name


def test_the_presets_defaults_are_what_the_page_says() -> None:
    there = presets.hystrix()
    assert (there.least, there.wait, there.failure_ratio) == (20, 5.0, 0.5)
    assert (there.window_seconds, there.cells) == (10.0, 10)
    there = presets.resilience4j()
    assert (there.failure_ratio, there.slow_ratio, there.slow_after) == (0.5, 1.0, 60.0)
    assert (there.window, there.least, there.wait, there.probes) == (100, 100, 60.0, 10)
    assert (there.judge_early, there.half_open_for, there.automatic) == (True, None, False)
    there = presets.consecutive()
    assert (there.least, there.wait, there.probes, there.probe_failures) == (5, 60.0, 1, 1)
