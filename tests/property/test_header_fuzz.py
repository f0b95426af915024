"""Headers at random: nothing a client sends moves its address, breaks a body or ends a header.

Forty sets of headers for each of HEADGATE_EXAMPLES: 25,000 of them make a million.
"""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import dataclass

import pytest

from headgate import Decision, Limiter, ManualClock
from headgate.addresses import Trusted, canonical, client_address, ip_key, read_address
from headgate.headers import FORMATS, Part, header_pairs, policy_name
from headgate.paths import normal_path
from headgate.problems import KINDS, refusal_body

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", "100"))
SETS = 10 * EXAMPLES  # and four tests
SEED = random.randrange(2**32) if "HEADGATE_EXAMPLES" in os.environ else 7

PROXIES = ["10.0.0.1", "10.255.0.2", "::ffff:10.0.0.3", "2001:db8:ffff::1"]
TRUSTED = ("10.0.0.0/8", "2001:db8:ffff::/48")
CLIENTS = ["192.0.2.9", "2001:db8::9", "::ffff:192.0.2.7", "203.0.113.5"]
WORDS = [
    ",", ",", ", ", ";", '"', "\\", "for=", "For=", "by=", 'for="', '="', "[", "]", ":80", "%eth0",
    "unknown", "_hidden", "6.6.6.6", "10.0.0.9", "[::1]", "::1", "2001:db8:ffff::7", "\0", "\n",
    "text/html", "*/*", "application/json", ";q=", "0.5", "q=0", "1", "é", "\ud800", "\x7f", " ",
    "/", "..", ".", "%2F", "%25", "%00", "%C3", "//", "a", "api", "=", "\t", "=?", "nan", "-1",
]  # fmt: skip


def noise(chance: random.Random) -> str:
    if chance.random() < 0.05:
        return chance.choice(WORDS) * chance.randrange(2000)
    if chance.random() < 0.1:
        return "".join(chr(chance.randrange(0x300)) for _ in range(chance.randrange(20)))
    return "".join(chance.choices(WORDS, k=chance.randrange(12)))


def written(address: str, header: str, chance: random.Random) -> str:
    """An address as a proxy may append it."""
    port = chance.choice(["", ":443"])
    six = ":" in address
    text = f"[{address}]{port}" if six and (port or header == "forwarded") else address + port
    if header == "x-forwarded-for":
        return text
    said = f'for="{text}"' if six or port else f"for={text}"
    return (
        chance.choice(["", "proto=https;"]) + said + chance.choice(["", ';host="a, b"', ";by=_x"])
    )


def test_no_prefix_moves_a_client() -> None:
    """Whatever stands in a header before what the proxies append: the client is who it is."""
    chance = random.Random(SEED)
    for example in range(SETS):
        header = chance.choice(["x-forwarded-for", "forwarded"])
        trusted = Trusted(*TRUSTED, header=header)
        client = chance.choice(CLIENTS)
        hops = [client, *chance.choices(PROXIES, k=chance.randrange(3))]
        forged = noise(chance)
        rest = [written(hop, header, chance) for hop in hops]
        lines = [forged, *rest] if chance.random() < 0.5 else [", ".join([forged, *rest])]
        pairs = [(header, line) for line in lines]
        pairs.insert(chance.randrange(len(pairs) + 1), ("accept", noise(chance)))
        other = "forwarded" if header == "x-forwarded-for" else "x-forwarded-for"
        pairs.append((other, noise(chance)))
        peer = chance.choice(PROXIES)
        place = (SEED, example, peer, pairs)
        assert client_address(peer, pairs, trusted) == canonical(client), place
        # Where no header is named, a forged second one makes the proxy the client at most.
        either = client_address(peer, pairs, Trusted(*TRUSTED))
        assert either in (canonical(client), canonical(peer)), place


def test_a_stranger_is_who_it_is() -> None:
    chance = random.Random(SEED + 1)
    trusted = Trusted(*TRUSTED)
    for example in range(SETS):
        headers = {"x-forwarded-for": noise(chance), "forwarded": noise(chance)}
        peer = chance.choice([*CLIENTS, "", "testclient"])
        expected = canonical(peer) if ":" in peer or "." in peer else peer or "unix"
        assert client_address(peer, headers, trusted) == expected, (SEED, example)
        found = client_address(chance.choice(PROXIES), headers, trusted)
        assert read_address(found) is not None, (SEED, example, headers)
        assert ip_key(ip_key(found)) == ip_key(found) or "/" in ip_key(found)
        read_address(noise(chance))


@dataclass
class Verdict:
    decisions: list[Part]
    retry_after: float
    status: int = 429


def _decisions() -> list[Decision]:
    found = []
    for limits in (["100/minute"], ["1/day"], ["10/second burst 5", "7/hour"], ["3/500ms"]):
        limiter = Limiter(*limits, clock=ManualClock(1_000_000.5))
        found += [limiter.hit("k") for _ in range(8)]
    return found


STRING = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
PARAMETER = rf";[a-z]+=(?:\d{{1,15}}|{STRING}|:[A-Za-z0-9+/=]*:)"
LIST = re.compile(rf"{STRING}(?:{PARAMETER})+(?:, {STRING}(?:{PARAMETER})+)*")


@pytest.mark.parametrize("part", ["bodies", "names"])
def test_bodies_and_names(part: str) -> None:
    chance = random.Random(SEED + 2)
    decisions = _decisions()
    for example in range(SETS):
        text = noise(chance)
        chosen = chance.choices(decisions, k=chance.randrange(1, 4))
        wait = max(decision.retry_after for decision in chosen)
        place = (SEED, example, text)
        if part == "bodies":
            _, kind, content = refusal_body(Verdict([Part("p", chosen[0])], wait), text)
            assert kind.partition(";")[0] in KINDS, place
            if kind == KINDS[0]:
                json.loads(content)
            assert normal_path(normal_path(text)) == normal_path(text), place
            continue
        try:
            policy_name(text)
        except ValueError:
            with pytest.raises(ValueError, match="control characters"):
                header_pairs([Part(text, chosen[0])], allowed=True, retry_after=0)
            continue
        allowed = all(chosen)
        for format in FORMATS:  # noqa: A001
            pairs = header_pairs(
                [Part(text, decision) for decision in chosen],
                allowed=allowed,
                retry_after=wait,
                format=format,
                partition_key=text.encode("utf-8", "surrogatepass"),
            )
            assert ("Retry-After" in dict(pairs)) == (not allowed), place
            for name, value in pairs:
                assert value.isascii(), place
                assert value.isprintable(), place
                if name.startswith("RateLimit") and format in ("draft-11", "draft-10"):
                    assert LIST.fullmatch(value), (place, value)
