"""The text for Prometheus, read back by Prometheus' own parsers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gate_tools import rule
from telemetry_tools import ANNA, BERT, mixed, watched

from headgate import AsyncGate, Facts, MemoryStore
from headgate.telemetry import Telemetry
from headgate.telemetry.prometheus import OPENMETRICS, TEXT, exposition, wants_openmetrics

plain: Any = pytest.importorskip("prometheus_client.parser")
openmetrics: Any = pytest.importorskip("prometheus_client.openmetrics.parser")

SCRAPE = (
    "application/openmetrics-text;version=1.0.0;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def read(telemetry: Telemetry, accept: str = "") -> dict[tuple[str, Any], float]:
    """All samples, by name and labels."""
    kind, text = exposition(telemetry, accept)
    parser = openmetrics if kind == OPENMETRICS else plain
    families = list(parser.text_string_to_metric_families(text.decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    found = {}
    for family in families:
        assert family.type in ("counter", "gauge", "histogram")
        assert family.documentation
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def decided(rule: str, result: str) -> tuple[str, Any]:
    return "headgate_decisions_total", (("result", result), ("rule", rule))


@pytest.mark.parametrize("accept", ["", SCRAPE])
def test_everything_can_be_read_back(accept: str) -> None:
    with watched(*mixed(), rule("pool", "9 concurrent")) as (gate, telemetry):
        kept = [gate.check(ANNA) for _ in range(3)]
        held = gate.check(Facts(path="/pool", user="carl"))
        found = read(telemetry, accept)
        assert found[decided("api", "allowed")] == 2
        assert found[decided("api", "refused")] == 1
        assert found[decided("trial", "shadowed")] == 2
        assert found[decided("blocked", "refused")] == 0  # there before anything happens
        assert found["headgate_calls_total", (("result", "refused"),)] == 1
        assert found["headgate_permits_in_use", (("rule", "pool"),)] == 3
        assert found["headgate_degraded_total", (("rule", "api"),)] == 0
        assert found["headgate_reload_errors_total", ()] == 0
        assert found["headgate_workers", ()] == 1
        assert found["headgate_store_seconds_count", ()] == 4
        assert found["headgate_store_seconds_bucket", (("le", "+Inf"),)] == 4
        assert found["headgate_store_seconds_sum", ()] > 0
        loaded = found["headgate_rules_loaded_timestamp_seconds", ()]
        assert loaded == pytest.approx(gate.status()["loaded_at"])
        assert found["headgate_top_key_calls", (("rank", "1"), ("rule", "api"))] == 3
        assert found["headgate_top_key_refused", (("rank", "1"), ("rule", "api"))] == 1
        held.permit.release()
        kept.clear()
        assert read(telemetry)["headgate_permits_in_use", (("rule", "pool"),)] == 0


def test_nobody_is_named() -> None:
    with watched(*mixed()) as (gate, telemetry):
        for number in range(100):
            gate.check(Facts(user=f"user-{number}", ip=f"198.51.100.{number}", path="/api/1"))
        for _ in range(9):
            gate.check(ANNA)
            gate.check(BERT)
        for accept in ("", SCRAPE):
            _, text = exposition(telemetry, accept)
            for who in (b"anna", b"bert", b"user-", b"198.51", b"192.0.2"):
                assert who not in text
        assert len(read(telemetry)) < 150


def test_waits_by_rule() -> None:
    async def main() -> None:
        with watched(
            rule("pool", "1 concurrent", wait=5.0), kind=AsyncGate, store=MemoryStore()
        ) as (gate, telemetry):  # fmt: skip
            await (await gate.check(ANNA)).permit.release()
            first = await gate.check(ANNA)
            waits = asyncio.ensure_future(gate.check(ANNA))
            await asyncio.sleep(0.01)
            await first.permit.release()
            await (await waits).permit.release()
            for accept in ("", SCRAPE):
                found = read(telemetry, accept)
                assert found["headgate_wait_seconds_count", (("rule", "pool"),)] >= 1
                assert found["headgate_permits_total", (("rule", "pool"),)] == 3

    asyncio.run(main())


@pytest.mark.parametrize("name", ['a "b"', "a\\b", "a\nb", "\\n", 'x"} 1\nheadgate_evil 1', "é∞"])
@pytest.mark.parametrize("accept", ["", SCRAPE])
def test_names_that_could_break_a_line(name: str, accept: str) -> None:
    with watched(rule(name, "9/minute")) as (gate, telemetry):
        gate.check(ANNA)
        found = read(telemetry, accept)
        assert found[decided(name, "allowed")] == 1
        assert not any(sample.startswith("headgate_evil") for sample, _ in found)


def test_nothing_was_watched_yet() -> None:
    for accept in ("", SCRAPE):
        assert read(Telemetry(), accept)["headgate_calls_total", (("result", "allowed"),)] == 0


def test_shared_counts_are_added_up(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    with (
        watched(rule("api", "5/minute"), shared=path) as (gate, first),
        watched(rule("api", "5/minute"), shared=path) as (other, second),
    ):
        gate.check(ANNA)
        other.check(ANNA)
        for telemetry in (first, second):
            assert read(telemetry)[decided("api", "allowed")] == 2
            assert read(telemetry)["headgate_workers", ()] == 2


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False), ("*/*", False), (SCRAPE, True), ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.9", False),
        ("application/openmetrics-text;q=much", False),
        ("APPLICATION/OpenMetrics-Text; version=1.0.0", True),
        (",;,;q=", False),
    ],
)  # fmt: skip
def test_which_format(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted
    assert exposition(Telemetry(), accept)[0] == (OPENMETRICS if wanted else TEXT)
