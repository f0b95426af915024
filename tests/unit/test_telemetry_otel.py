"""OpenTelemetry, through its own SDK: what a reader collects, and what a span is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gate_tools import rule
from telemetry_tools import ANNA, mixed, watched

from headgate import AsyncGate, Facts, MemoryStore
from headgate.telemetry import Telemetry

metrics: Any = pytest.importorskip("opentelemetry.sdk.metrics")
export: Any = pytest.importorskip("opentelemetry.sdk.metrics.export")
trace: Any = pytest.importorskip("opentelemetry.sdk.trace")

otel: Any = pytest.importorskip("headgate.telemetry.otel")


class Collected:
    """A reader in memory, and what it collects."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._reader = export.InMemoryMetricReader()
        self._provider = metrics.MeterProvider(metric_readers=[self._reader])
        otel.instrument(telemetry, provider=self._provider)

    def points(self, name: str) -> dict[Any, Any]:
        """The points of an instrument by its attributes."""
        data = self._reader.get_metrics_data()
        scopes = [] if data is None else data.resource_metrics[0].scope_metrics
        return {
            tuple(sorted(point.attributes.items())): getattr(point, "value", point)
            for scope in scopes
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }

    def close(self) -> None:
        self._provider.shutdown()


def test_counters_and_gauges() -> None:
    with watched(*mixed(), rule("pool", "9 concurrent")) as (gate, telemetry):
        collected = Collected(telemetry)
        kept = [gate.check(ANNA) for _ in range(3)]
        held = gate.check(Facts(path="/pool"))
        requests = collected.points("headgate.rate_limiting.requests")
        assert requests[("headgate.result", "allowed"), ("headgate.rule", "api")] == 2
        assert requests[("headgate.result", "refused"), ("headgate.rule", "api")] == 1
        assert requests[("headgate.result", "shadowed"), ("headgate.rule", "trial")] == 2
        leases = "headgate.rate_limiting.active_request_leases"
        assert collected.points(leases) == {(("headgate.rule", "pool"),): 3}
        held.permit.release()
        kept.clear()
        assert collected.points(leases) == {(("headgate.rule", "pool"),): 0}
        assert collected.points("headgate.reload.errors") == {(): 0}
        (store,) = collected.points("headgate.store.duration").values()
        assert store.count == 4
        assert store.explicit_bounds[0] == 0.000001
        collected.close()


def test_time_in_queue() -> None:
    async def main() -> None:
        with watched(
            rule("pool", "1 concurrent", wait=5.0), kind=AsyncGate, store=MemoryStore()
        ) as (gate, telemetry):  # fmt: skip
            collected = Collected(telemetry)
            first = await gate.check(ANNA)
            waits = asyncio.ensure_future(gate.check(ANNA))
            await asyncio.sleep(0.01)
            await first.permit.release()
            await (await waits).permit.release()
            found = collected.points("headgate.rate_limiting.request.time_in_queue")
            assert found[(("headgate.rule", "pool"),)].count >= 1
            collected.close()

    asyncio.run(main())


def test_each_process_reports_its_own(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    with (
        watched(rule("api", "5/minute"), shared=path) as (gate, first),
        watched(rule("api", "5/minute"), shared=path) as (other, second),
    ):
        collected = Collected(first)
        gate.check(ANNA)
        other.check(ANNA)
        assert list(collected.points("headgate.rate_limiting.requests").values()) == [1]
        assert second.snapshot()["calls"]["allowed"] == 2
        collected.close()


def test_what_a_span_is_told() -> None:
    with watched(*mixed()) as (gate, _):
        gate.on_verdict.append(otel.mark_span)
        gate.check(ANNA)  # outside of any span
        tracer = trace.TracerProvider().get_tracer("test")
        told = []
        for facts in (ANNA, ANNA, Facts(path="/health"), Facts(path="/secret", user="bert")):
            with tracer.start_as_current_span("call") as span:
                gate.check(facts)
            told.append(dict(span.attributes))
        shadowed = ("trial",)
        assert told[0] == {"headgate.allowed": True, "headgate.shadowed": shadowed}
        assert told[1].pop("headgate.retry_after") > 0
        assert told[1] == {
            "headgate.allowed": False, "headgate.rule": "api", "headgate.shadowed": shadowed,
        }  # fmt: skip
        assert told[2] == {"headgate.allowed": True, "headgate.exempt": "health"}
        assert told[3] == {"headgate.allowed": False, "headgate.rule": "blocked"}
