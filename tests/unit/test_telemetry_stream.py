"""The stream of seconds: what a reader gets, and that nobody waits for a slow one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from gate_tools import rule, until
from telemetry_tools import ANNA, Hands, watched

from headgate.telemetry.stream import BEHIND, Stream, as_event
from headgate.telemetry.ticking import Ticker


def parsed(chunk: bytes) -> list[tuple[str, Any]]:
    """The events of a chunk: name and data."""
    found = []
    for block in chunk.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_seconds_as_they_pass() -> None:
    async def main() -> None:
        clock = Hands()
        with watched(rule("api", "2/minute", key="user"), clock=clock) as (gate, telemetry):
            stream = Stream(telemetry, interval=60)
            reader = stream.read()
            (history, (kind, keys)) = parsed(await anext(reader))
            assert history[0] == "history"
            assert history[1]["rules"] == {}
            assert kind == "keys"
            assert keys == {"all": {}, "refused": {}}
            for _ in range(3):
                gate.check(ANNA)
            clock.now += 1
            assert stream.step()
            assert not stream.step()
            chunk = await anext(reader)
            assert chunk.startswith(b"event: second\nid: 1001\ndata: {")
            ((_, second),) = parsed(chunk)
            assert second["at"] == 1001
            assert second["rules"] == {"api": {"allowed": 2, "refused": 1}}
            assert second["calls"] == {"allowed": 2, "refused": 1}
            assert second["store"]["count"] == 3
            assert [event["key"] for event in second["refusals"]] == ["anna"]
            clock.now += 4
            stream.step()
            ((_, second), (_, keys)) = parsed(await anext(reader))
            assert second["refusals"] == []  # they were told
            assert keys["refused"] == {"api": [{"key": "anna", "count": 1, "error": 0}]}
            await stream.stop()
            assert parsed(await anext(reader)) == [("end", {})]
            assert [chunk async for chunk in reader] == []
            assert stream.readers == 0

    asyncio.run(main())


def test_a_slow_reader_is_dropped_and_others_are_not() -> None:
    async def main() -> None:
        clock = Hands()
        with watched(rule("api", "2/minute"), clock=clock) as (_, telemetry):
            stream = Stream(telemetry, interval=60)
            slow, quick = stream.read(), stream.read()
            await anext(slow)
            await anext(quick)
            for _ in range(BEHIND + 3):
                clock.now += 1
                stream.step()
                assert parsed(await anext(quick))[0][1]["at"] == int(clock.now)
            assert stream.dropped == 1
            assert stream.readers == 1
            rest = [parsed(chunk)[0][0] async for chunk in slow]
            assert rest[-1] == "end"
            assert len(rest) <= BEHIND
            await quick.aclose()  # type: ignore[attr-defined] # a generator in fact
            assert stream.readers == 0
            await stream.stop()

    asyncio.run(main())


def test_whoever_else_ticks_takes_no_second_away() -> None:
    async def main() -> None:
        clock = Hands()
        with watched(rule("api", "2/minute"), clock=clock) as (_, telemetry):
            stream = Stream(telemetry, interval=60)
            first, second = stream.read(), stream.read()
            await anext(first)
            clock.now += 1
            telemetry.tick()
            await anext(second)  # somebody who joins before the stream has ticked
            assert parsed(await anext(first))[0][1]["at"] == 1001
            await stream.stop()

    asyncio.run(main())


def test_so_many_may_read_along() -> None:
    async def main() -> None:
        with watched(rule("api", "2/minute")) as (_, telemetry):
            stream = Stream(telemetry, interval=60, readers=1)
            first, second = stream.read(), stream.read()
            await anext(first)
            assert [parsed(chunk)[0][0] async for chunk in second] == ["full"]
            await stream.stop()

    asyncio.run(main())


def test_it_ticks_by_itself_and_ends_with_its_last_reader() -> None:
    async def main() -> None:
        with watched(rule("api", "2/minute")) as (gate, telemetry):
            hands = telemetry.clock
            stream = Stream(telemetry, interval=0.005)
            reader = stream.read()
            await anext(reader)
            gate.check(ANNA)
            hands.now += 1
            async with asyncio.timeout(5):
                ((_, second),) = parsed(await anext(reader))
            assert second["rules"] == {"api": {"allowed": 1}}
            await reader.aclose()  # type: ignore[attr-defined] # a generator in fact
            assert stream._task is not None
            async with asyncio.timeout(5):
                await stream._task
            await stream.stop()

    asyncio.run(main())


def test_a_history_without_readers() -> None:
    async def main() -> None:
        with watched(rule("api", "5/minute")) as (gate, telemetry):
            stream = Stream(telemetry, interval=0.005)
            stream.start()
            while not telemetry.rolling.at:
                await asyncio.sleep(0.001)
            gate.check(ANNA)
            telemetry.clock.now += 1
            while telemetry.rolling.at < 1001:
                await asyncio.sleep(0.001)
            reader = stream.read(history=2)
            history = parsed(await anext(reader))[0][1]
            assert history["rules"]["api"] == {"allowed": [0, 1]}
            assert history["totals"]["calls"]["allowed"] == 1
            await stream.stop()

    asyncio.run(main())


def test_a_reader_that_is_cancelled_leaves_nothing() -> None:
    async def main() -> None:
        with watched(rule("api", "5/minute")) as (_, telemetry):
            stream = Stream(telemetry, interval=60)

            async def follow() -> None:
                async for _ in stream.read():
                    pass

            task = asyncio.ensure_future(follow())
            while not stream.readers:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await asyncio.get_running_loop().shutdown_asyncgens()
            assert stream.readers == 0
            await stream.stop()

    asyncio.run(main())


def test_data_has_no_line_ends() -> None:
    chunk = as_event("x", {"a": "1\n2\r\u2028"})
    assert chunk.count(b"\n") == 3
    assert parsed(chunk) == [("x", {"a": "1\n2\r\u2028"})]


def test_a_thread_that_ticks() -> None:
    with watched(rule("api", "5/minute")) as (gate, telemetry):
        telemetry.clock.now = 1000.995  # five milliseconds before the next second, always
        called: list[int] = []

        def broken() -> None:
            called.append(telemetry.rolling.at)
            raise OSError

        with Ticker(telemetry, broken):
            until(lambda: len(called) > 1)
            gate.check(ANNA)
            telemetry.clock.now += 1
            until(lambda: telemetry.rolling.at == 1001)
        assert telemetry.rolling.second()["api"] == {"allowed": 1}
