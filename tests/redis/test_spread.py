"""Cells, log and permits in Lua against the algorithms they translate, on random traces.

Kernels alone run a whole trace in one script call: every step opens the body that the last one
closed, so the bytes are part of what is compared. The same traces then go through the scripts of
the store, one call a step. HEADGATE_TRACES says how many traces each kind gets.
"""

from __future__ import annotations

import os
import random
import struct
from importlib.resources import files
from typing import Any

import pytest
from spread_traces import LIMITS, SLACK, Trace

from headgate import Limit
from headgate.algorithms import rule_of
from headgate.decision import Ask
from headgate.stores.redis import codec
from headgate.stores.redis.scripts import script

TRACES = int(os.environ.get("HEADGATE_TRACES", "10000"))
LOT = 1000
ANSWER = struct.Struct("<5q")

MAIN = """
local body, steps, at, out = ARGV[2], ARGV[3], 1, {}
local _, tag, tick, p1, p2, p3 = struct.unpack('<Bdd' .. ('d'):rep((#ARGV[1] - 17) / 8), ARGV[1])
while at <= #steps do
  local op, now, cost, more, token, wait, lives
  op, now, cost, more, at = struct.unpack('<i8i8i8i8', steps, at)
  token, at, wait = steps:sub(at, at + 15), at + 16, 0
  local hit = {}
  if op == 0 and body and body ~= '' then
    hit = {K_hit(body, now, cost, tag, p1, p2, p3)}
  end
  local s = K_open(body, tag, p1, p2, p3)
  if op == 2 then
    K_refund(s, now, cost, more)
  end
  K_roll(s, now)
  if op == 0 then
    wait = K_fits(s, now, cost, token, 0)
    if wait == 0 then
      K_put(s, now, cost, token, more)
    end
  elseif op == 5 then
    wait = K_fits(s, now, cost)
  elseif op == 1 then
    K_put(s, now, cost, token, more)
  elseif op == 3 then
    wait = K_release(s, token) and 0 or -1
  elseif op == 4 then
    wait = K_renew(s, token, more) and 0 or -1
  end
  local a, b, c = K_view(s, now, (op == 0 or op == 5) and cost or 0)
  local next, lives = K_close(s)
  if s.changed then
    body = next
  end
  if hit[1] then
    assert(hit[1] == body and hit[2] == wait and hit[3] == a, 'the short way')
    assert(hit[4] == b and hit[5] == c and hit[6] == lives, 'the short way')
  end
  if a == 0 then
    lives = 0 -- permits are kept a little longer, for their last fence
  end
  out[#out + 1] = struct.pack('<i8i8i8i8i8', wait, a, b, c, lives)
end
return {table.concat(out), body or ''}
"""


def kernel(kind: str) -> str:
    text = (files("headgate.stores.redis") / "lua" / f"{kind}.lua").read_text("ascii")
    main = MAIN
    for name in ("hit",) if kind == "permits" else ("release", "renew"):
        main = main.replace(f"K_{name}", "(function() return false end)")  # not of this kind
    return text + main.replace("K_", f"{kind}_")


def compare(client: Any, kind: str, chance: random.Random, traces: int, steps: int) -> None:
    sha = client.script_load(kernel(kind))
    for done in range(0, traces, LOT):
        lot = [Trace(kind, chance, steps) for _ in range(min(LOT, traces - done))]
        with client.pipeline(transaction=False) as pipe:
            for trace in lot:
                pipe.evalsha(sha, 0, *trace.arguments())
            replies = pipe.execute()
        for trace, (answers, body) in zip(lot, replies, strict=True):
            trace.check(list(ANSWER.iter_unpack(answers)), body)


@pytest.mark.parametrize("kind", LIMITS)
def test_short_traces(server: Any, kind: str) -> None:
    with server.client() as client:
        compare(client, kind, random.Random(f"{kind} {TRACES}"), TRACES, 10)


@pytest.mark.parametrize("kind", LIMITS)
def test_long_traces(server: Any, kind: str) -> None:
    with server.client() as client:
        compare(client, kind, random.Random(kind), max(100, TRACES // 100), 300)


@pytest.mark.parametrize("kind", LIMITS)
def test_scripts(server: Any, kind: str) -> None:
    chance, traces = random.Random(f"scripts {kind} {TRACES}"), max(100, TRACES // 5)
    with server.client() as client:
        for main in ("decide",) if kind == "permits" else ("decide", "take"):
            client.script_load(script(main, (kind,)).text)
        for done in range(0, traces, LOT):
            lot = [Trace(kind, chance, 10) for _ in range(min(LOT, traces - done))]
            with client.pipeline(transaction=False) as pipe:
                for number, trace in enumerate(lot):
                    name = f"trace{number}"
                    pipe.delete(name)
                    if trace.body:
                        pipe.set(name, trace.body)
                    for call in trace.calls(name, chance):
                        pipe.evalsha(*call)
                    pipe.get(name)
                replies = iter(pipe.execute())
            for trace in lot:
                for _ in range(2 if trace.body else 1):
                    next(replies)
                answers = [_numbers(next(replies)) for _ in trace.steps]
                trace.check(answers, next(replies) or b"")


def _numbers(reply: Any) -> tuple[int, ...]:
    """Wait and view, of either script."""
    answer = reply[0] if isinstance(reply, list) else reply
    return struct.unpack_from("<4q", answer)


def hit(client: Any, limit: str, name: str, now: int, **how: Any) -> tuple[int, ...]:
    """What decide answers to one take: wait, view, now, fence, cost."""
    rule = rule_of(Limit.parse(limit))
    made = script("decide", (codec.kind_of(rule),))
    ask = codec.op_blob(Ask(**{"op": "take", "limit": rule.limit, **how}))
    (reply,) = client.eval(
        made.text, 1, name, codec.time_blob(now, SLACK), codec.blob(rule, now), ask
    )
    return struct.unpack("<7q", reply)


def test_fences_grow(server: Any) -> None:
    """With every grant, even if the clock stands still and nobody holds any more."""
    now, last = 1_700_000_000_000_000, 0
    with server.client() as client:
        client.delete("fences")
        for token in range(1, 6):
            fence = hit(client, "2 concurrent", "fences", now, token=token, ttl=1000)[5]
            again = hit(client, "2 concurrent", "fences", now, token=token, ttl=1000)[5]
            assert fence == again > last
            last = fence
            hit(client, "2 concurrent", "fences", now, op="release", token=token)
        assert client.get("fences")
        hit(client, "2 concurrent", "fences", now + 60, token=9, ttl=1000)
        hit(client, "2 concurrent", "fences", now + 61, op="release", token=9)
        assert client.get("fences") is None  # the time alone says more than the last fence


def test_memory(server: Any) -> None:
    """What a key of 12 characters costs, in bytes."""
    found = {}
    hour, count, now = 3_600_000_000, 500, 1_700_000_000_000_000
    with server.client() as client:
        for limit in ("500/hour cells 60", "500/hour sliding-log"):
            rule = rule_of(Limit.parse(limit))
            made = script("take", (codec.kind_of(rule),))
            client.script_load(made.text)
            name = "user:1234567"
            client.delete(name)
            with client.pipeline(transaction=False) as pipe:
                for place in range(count):
                    at = now + place * hour // count
                    how = codec.take_blob(codec.blob(rule, now), 1, 0, at, SLACK)
                    pipe.evalsha(made.sha, 1, name, how)
                assert {_numbers(reply)[0] for reply in pipe.execute()} == {0}
            found[codec.kind_of(rule)] = (client.strlen(name), client.memory_usage(name))
    assert found["cells"][0] == 19 + 60
    assert found["log"][0] == 26 + 4 * count  # no event takes more than four bytes
    assert found["cells"][1] <= 200
    assert found["log"][1] <= 2300
