"""What scripts do beside counting: sent back before a write, values with more, times to live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from struct import Struct
from typing import Any

import pytest
from traces import Wire, limit_text

from headgate import Limit
from headgate.algorithms import rule_of
from headgate.decision import Ask
from headgate.stores.redis import codec
from headgate.stores.redis.answers import outcome_of
from headgate.stores.redis.kinds import KINDS, SPREAD
from headgate.stores.redis.scripts import script
from servers import Server

NOW = 1_767_225_600_000_000
OUTCOME = Struct("<5q")
SLACK = 3_600_000
TOKEN = 7


class Scripts:
    """Calls with a limit's text."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.now = NOW

    def take(self, text: str, *keys: str, counts: Sequence[int] = (), **more: Any) -> Any:
        rule = rule_of(Limit.parse(text))
        cost, wait, slack = more.get("cost", 1), more.get("max_wait", 0), more.get("slack", SLACK)
        blob = codec.blob(rule, more.get("seen", self.now))
        words = [codec.take_blob(blob, cost, wait, self.now, slack)]
        if counts:
            words.append(Struct(f"<{len(counts)}I").pack(*counts))
        text = script("take", (codec.kind_of(rule),)).text
        reply = self.client.eval(text, len(keys), *keys, *words)
        if isinstance(reply, bytes) and len(reply) == 25:
            return [outcome_of(reply)]
        return list(OUTCOME.iter_unpack(reply)) if isinstance(reply, bytes) else reply

    def decide(self, *asks: Ask, kinds: Sequence[str] = ()) -> Any:
        words, names = [codec.time_blob(self.now, SLACK)], []
        for ask in asks:
            names.append(str(ask.key))
            words += (codec.blob(rule_of(ask.limit), self.now), codec.op_blob(ask))
        needed = {codec.kind_of(rule_of(ask.limit)) for ask in asks} | set(kinds)
        text = script("decide", tuple(sorted(needed))).text
        reply = self.client.eval(text, len(names), *names, *words)
        if isinstance(reply[0], int):
            return reply
        return [(*Struct("<7q").unpack_from(part), part[56:].decode()) for part in reply]

    def own(self, key: str, text: str, at: int = NOW) -> None:
        held = codec.split(self.client.get(key) or b"")
        blob = codec.blob(rule_of(Limit.parse(text)), at)
        self.client.set(key, codec.join(held._replace(own_blob=blob, own_text=text)))

    def held(self, key: str) -> codec.Held:
        return codec.split(self.client.get(key) or b"")


@pytest.fixture
def scripts(server: Server) -> Iterator[Scripts]:
    client = server.client()
    client.flushall()
    yield Scripts(client)
    client.close()


def ask(op: str, text: str, key: str = "k", **more: Any) -> Ask:
    return Ask(op, Limit.parse(text), key, **more)


def test_every_script_says_on_top_what_it_takes_and_answers(scripts: Scripts) -> None:
    kinds: list[tuple[str, tuple[str, ...]]] = [("take", (k,)) for k in KINDS if k != "permits"]
    for main, needed in [*kinds, ("decide", KINDS), ("swap", ())]:
        made = script(main, needed)
        assert made.text.startswith(f"-- {main}: ")
        assert "KEYS" in made.text[:300]
        assert scripts.client.script_load(made.text) == made.sha
        assert all(ord(letter) < 128 for letter in made.text)


def test_a_permit_is_not_taken_by_the_short_script() -> None:
    with pytest.raises(ValueError, match="token"):
        script("take", ("permits",))


def test_many_keys_and_many_takes_of_one_key(scripts: Scripts) -> None:
    replies = scripts.take("2/minute", "a", "b", "c", counts=[1, 4, 1])
    assert [reply[0] for reply in replies] == [0, 0, 0, -1, -1, 0]
    assert [reply[2] for reply in replies] == [1, 1, 2, 2, 2, 1]
    assert scripts.take("2/minute", "a")[0][2] == 2


@pytest.mark.parametrize("text", ["2/minute", "2/minute gcra", "2/minute sliding-log"])
def test_a_state_of_another_shape_is_sent_back_untouched(scripts: Scripts, text: str) -> None:
    scripts.take("3/minute token-bucket", "b")
    value = scripts.client.get("b")
    assert scripts.take(text, "b") == [-2, 1, value]
    assert scripts.take(text, "a", "b", "c") == [-2, 2, value]
    assert scripts.decide(ask("take", text, "a"), ask("take", text, "b")) == [-2, 2, value]
    assert sorted(scripts.client.keys()) == [b"b"]


def test_a_window_of_the_calendar_that_is_over_is_sent_back(scripts: Scripts) -> None:
    text = "5/day fixed-window tz Asia/Shanghai"
    assert scripts.take(text, "k", seen=NOW - 86_400_000_000) == [-1, 1, NOW]
    assert scripts.client.keys() == []
    assert scripts.take(text, "k")[0][0] == 0
    scripts.own("k", "9/day fixed-window tz UTC", NOW - 86_400_000_000)
    value = scripts.client.get("k")
    assert scripts.take(text, "k") == [-1, 1, NOW, value]
    assert scripts.decide(ask("take", text)) == [-1, 1, NOW, value]


def test_an_own_limit_holds_in_place_of_the_asks(scripts: Scripts) -> None:
    scripts.own("k", "2/minute")
    reply, text = scripts.take("100/minute", "k")
    assert text == b"2/minute"
    assert OUTCOME.unpack(reply)[0] == 0
    assert scripts.take("100/minute", "k", "other") == [-3, 1]
    assert scripts.decide(ask("take", "100/minute"))[0][-1] == "2/minute"
    assert scripts.decide(ask("take", "100/minute"))[0][0] == -1
    assert OUTCOME.unpack(scripts.take("100/minute", "k")[0])[0] == -1
    assert scripts.client.pttl("k") == -1  # a setting does not expire
    scripts.decide(ask("reset", "100/minute"))
    assert scripts.held("k").body == b""
    assert scripts.held("k").own_text == "2/minute"


def test_an_own_limit_of_another_kind_asks_for_its_kernel(scripts: Scripts) -> None:
    scripts.own("k", "1/minute gcra")
    assert scripts.take("100/minute", "k") == [-4, 1, b"1/minute gcra"]
    assert scripts.decide(ask("take", "100/minute")) == [-4, 1, b"1/minute gcra"]
    both = scripts.decide(ask("take", "100/minute"), kinds=["gcra"])
    assert both[0][0] == 0
    assert scripts.decide(ask("take", "100/minute"), kinds=["gcra"])[0][0] == -1


def test_a_reservation_is_kept_beside_the_state_and_comes_back(scripts: Scripts) -> None:
    scripts.decide(ask("take", "5/minute", cost=4, token=TOKEN, ttl=10_000_000))
    held = scripts.held("k")
    assert held.reservations == ((codec.token_bytes(TOKEN), 4, NOW, NOW + 10_000_000),)
    assert scripts.take("5/minute", "k")[0][0] == 0  # the short script carries it along
    assert scripts.held("k").reservations == held.reservations
    scripts.now += 10_000_000
    assert scripts.take("5/minute", "k") == [-3, 1]
    assert scripts.decide(ask("take", "5/minute", cost=4))[0][:3] == (0, held_start(held), 5)
    assert scripts.held("k").reservations == ()
    assert len(scripts.client.get("k")) == 25


def held_start(held: codec.Held) -> int:
    return int.from_bytes(held.body[4:11], "little")


def test_waiting_takes_of_a_permit_stand_in_line(scripts: Scripts) -> None:
    text = "2 concurrent"

    def take(token: int, wait: int = 1_000_000, cost: int = 1) -> Any:
        asked = ask("take", text, cost=cost, token=token, max_wait=wait, ttl=60_000_000)
        return scripts.decide(asked)[0]

    first = take(1, 0, 2)
    assert first[0] == 0
    assert first[5] >= NOW
    assert take(2)[0] == -1
    assert take(3)[0] == -1
    assert [each.token[-1] for each in scripts.held("k").tickets] == [2, 3]
    scripts.decide(ask("release", text, token=1))
    assert take(3, cost=2)[0] == -1  # the first in line goes first
    assert take(4, 0)[0] == 0  # who does not wait may overtake
    assert take(2)[0] == 0
    assert [each.token[-1] for each in scripts.held("k").tickets] == [3]
    scripts.now += 2_000_001
    assert take(5)[0] == -1
    assert [each.token[-1] for each in scripts.held("k").tickets] == [5]  # the others gave up


def test_nothing_is_left_of_a_joint_refusal(scripts: Scripts) -> None:
    scripts.take("1/minute gcra", "b")
    before = scripts.client.get("b")
    asks = [
        ask("take", "5/minute", "a", token=TOKEN, ttl=1_000_000),
        ask("take", "1/minute gcra", "b"),
        ask("take", "5/minute sliding-log", "c"),
        ask("take", "5 concurrent", "d", token=TOKEN, ttl=1_000_000),
    ]
    replies = scripts.decide(*asks)
    assert [reply[0] for reply in replies] == [0, -1, 0, 0]
    assert scripts.client.get("b") == before
    assert scripts.client.get("a") is None
    assert scripts.client.get("c") is None
    assert scripts.held("d").body[38:] == b""  # only the fence is remembered
    assert scripts.decide(*(each._replace(key="x" + str(each.key)) for each in asks))[1][0] == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SPREAD])
def test_the_largest_costs_stay_countable(kind: str, scripts: Scripts) -> None:
    random = Random(f"large {kind}")
    for number in range(50):
        limit, key = Limit.parse(limit_text(kind, random)), str(number)
        for op in ("charge", "take", "charge", "charge", "take", "check", "refund", "take"):
            (reply,) = scripts.decide(
                Ask(op, limit, key, 2**53 - 1, max_wait=2**52, at=scripts.now + 5)
            )
            assert all(-1 <= word < 2**53 for word in reply[:5]), (limit, op, reply)
            scripts.now += random.choice((0, 1, limit.window, -limit.window))
        assert scripts.client.pttl(key) <= 100_000_000_000_000


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SPREAD])
def test_a_state_lives_until_its_reset(kind: str, server: Server) -> None:
    random, client = Random(kind), server.client()
    wire, expected = Wire(client), []
    for number in range(200):
        rule = rule_of(Limit.parse(limit_text(kind, random)))
        at, key = NOW + random.randint(0, rule.limit.window), b"%s%d" % (kind.encode(), number)
        now, state = at // rule.tick, rule.fresh(at // rule.tick)
        for op in ("charge", random.choice(("charge", "refund", "take"))):
            cost = random.choice((1, 2, rule.quota // 2 + 1))
            what = Ask(op, rule.limit, cost=cost, at=at)
            words = (codec.time_blob(at, SLACK), codec.blob(rule, at), codec.op_blob(what))
            wire.call(script("decide", (kind,)), (key,), words)
            if op == "charge":
                state = rule.charge(*state, now, cost)
            elif op == "refund":
                state = rule.refund(*state, now, cost, now)
            else:
                state = rule.take(*state, now, cost, 0)[1:]
        reset = rule.look(*state, now, 0)[2] * rule.tick
        keep = 86_400_000_000 + rule.window * rule.tick if rule.sticky else 0
        expected.append((key, (reset + keep) // 1000 + 2 + SLACK, rule.limit))
    wire.send()
    for key, lives, limit in expected:
        assert lives - 30_000 <= client.pttl(key) <= lives, limit
    wire.close()
    client.close()
