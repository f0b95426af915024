"""Which headers pass the gateway, and what it says of the way."""

from __future__ import annotations

import pytest

from headgate.addresses import Trusted
from headgate.gateway import Plan
from headgate.gateway.heads import request_head, response_head
from headgate.gateway.incoming import length_of
from headgate.service.faults import Fault

HOST = (b"host", b"shop.example")


def told(
    *pairs: tuple[bytes, bytes],
    peer: str | None = "192.0.2.7",
    trusted: Trusted | None = None,
    host: str = "",
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in request_head([HOST, *pairs], peer, "http", trusted, host):
        found.setdefault(name, []).append(value)
    return found


def test_headers_of_one_connection_stay_there() -> None:
    head = told(
        (b"connection", b"close, X-Private"), (b"connection", b"x-other"), (b"x-private", b"1"),
        (b"x-other", b"1"), (b"keep-alive", b"timeout=5"), (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"), (b"upgrade", b"h2c"), (b"trailer", b"x-sum"),
        (b"proxy-connection", b"close"), (b"proxy-authorization", b"Basic x"),
        (b"expect", b"100-continue"), (b"cookie", b"a=1"), (b"cookie", b"b=2"),
    )  # fmt: skip
    way = {"x-forwarded-for", "forwarded", "x-forwarded-proto", "x-forwarded-host"}
    assert set(head) == {"host", "cookie", "via", *way}
    assert head["cookie"] == ["a=1", "b=2"]


def test_connection_cannot_take_away_what_the_gateway_writes() -> None:
    head = told((b"connection", b"x-forwarded-for, host, via, forwarded, x-forwarded-proto"))
    assert head["host"] == ["shop.example"]
    assert head["x-forwarded-for"] == ["192.0.2.7"]
    assert head["via"] == ["1.1 headgate"]


@pytest.mark.parametrize("trusted", [None, Trusted("10.0.0.0/8")])
def test_a_stranger_says_nothing_about_the_way(trusted: Trusted | None) -> None:
    head = told(
        (b"x-forwarded-for", b"10.1.1.1"), (b"x_forwarded_for", b"10.1.1.1"),
        (b"forwarded", b"for=10.1.1.1"), (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"evil.example"), (b"x-forwarded-prefix", b"/x"),
        (b"x-forwarded-port", b"1"), (b"x-real-ip", b"10.1.1.1"), (b"x_real_ip", b"10.1.1.1"),
        trusted=trusted,
    )  # fmt: skip
    assert head == {
        "host": ["shop.example"],
        "x-forwarded-for": ["192.0.2.7"],
        "forwarded": ['for=192.0.2.7;host="shop.example";proto=http'],
        "x-forwarded-proto": ["http"],
        "x-forwarded-host": ["shop.example"],
        "via": ["1.1 headgate"],
    }


def test_a_trusted_proxy_is_added_to_the_list() -> None:
    ours = Trusted("192.0.2.0/24")
    head = told(
        (b"x-forwarded-for", b"198.51.100.1"), (b"x-forwarded-for", b"203.0.113.9"),
        (b"x-forwarded-proto", b"https"), (b"x-forwarded-host", b"www.example"),
        (b"x-forwarded-port", b"443"), (b"x_forwarded_for", b"10.1.1.1"), trusted=ours,
    )  # fmt: skip
    assert head["x-forwarded-for"] == ["198.51.100.1, 203.0.113.9, 192.0.2.7"]
    assert head["x-forwarded-proto"] == ["https"]
    assert head["x-forwarded-host"] == ["www.example"]
    assert head["x-forwarded-port"] == ["443"]
    assert "forwarded" not in head  # it would begin in the middle of the way
    assert "x_forwarded_for" not in head
    both = told((b"forwarded", b"for=198.51.100.1;proto=https"), trusted=ours)
    way = 'for=198.51.100.1;proto=https, for=192.0.2.7;host="shop.example";proto=http'
    assert both["forwarded"] == [way]
    assert "x-forwarded-for" not in both
    neither = told(trusted=ours)
    assert neither["x-forwarded-for"] == ["192.0.2.7"]
    assert len(neither["forwarded"]) == 1


def test_of_a_proxy_that_writes_one_list_the_other_is_not_believed() -> None:
    ours = Trusted("192.0.2.7", header="x-forwarded-for")
    spoofed = (b"forwarded", b"for=10.1.1.1")
    head = told((b"x-forwarded-for", b"198.51.100.1"), spoofed, trusted=ours)
    assert head["x-forwarded-for"] == ["198.51.100.1, 192.0.2.7"]
    assert "forwarded" not in head


@pytest.mark.parametrize(
    ("peer", "address", "element"),
    [
        ("2001:db8::7", "2001:db8::7", 'for="[2001:db8::7]";host="shop.example";proto=http'),
        ("::ffff:192.0.2.7", "192.0.2.7", 'for=192.0.2.7;host="shop.example";proto=http'),
        (None, None, 'host="shop.example";proto=http'),
    ],
)
def test_addresses_as_they_are_written(peer: str | None, address: str, element: str) -> None:
    head = told(peer=peer)
    assert head.get("x-forwarded-for", [None]) == [address]
    assert head["forwarded"] == [element]


def test_host_is_kept_or_replaced() -> None:
    assert told()["host"] == ["shop.example"]
    replaced = told(host="up.example:81")
    assert replaced["host"] == ["up.example:81"]
    assert replaced["x-forwarded-host"] == ["shop.example"]
    assert Plan("http://up").keeps_host
    assert not Plan("https://up").keeps_host
    assert Plan("https://up", host="keep").keeps_host


@pytest.mark.parametrize("host", [b"a b", b'a"', b"a/b", b"user@a", b"[::1", b"a:b", b"\xff"])
def test_a_host_that_is_none(host: bytes) -> None:
    with pytest.raises(Fault) as error:
        request_head([(b"host", host)], None, "http", None, "")
    assert error.value.status == 400


def test_a_header_that_cannot_be_passed_on_as_it_is() -> None:
    assert told((b"x-name", "Zoë".encode()))["x-name"] == ["Zoë"]
    with pytest.raises(Fault) as error:
        told((b"x-name", b"Zo\xeb"))
    assert error.value.status == 400


def test_a_call_that_goes_round_in_circles() -> None:
    assert told((b"via", b"1.1 other"))["via"] == ["1.1 other, 1.1 headgate"]
    with pytest.raises(Fault) as error:
        told((b"via", b", ".join([b"1.1 headgate"] * 8)))
    assert error.value.status == 508


def test_headers_of_a_response() -> None:
    assert response_head(
        [
            (b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked"),
            (b"Connection", b"close, X-Hop"), (b"X-Hop", b"1"), (b"Keep-Alive", b"timeout=5"),
            (b"Set-Cookie", b"a=1"), (b"Set-Cookie", b"b=2"), (b"Server", b"x"),
        ]
    ) == [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"server", b"x")]  # fmt: skip
    assert response_head([(b"Content-Length", b"5")]) == [(b"content-length", b"5")]


@pytest.mark.parametrize(
    ("pairs", "length"),
    [
        ([], None),
        ([(b"content-length", b"5")], 5),
        ([(b"content-length", b"5"), (b"content-length", b"5")], 5),
        ([(b"transfer-encoding", b"Chunked")], -1),
    ],
)
def test_the_length_of_a_request(pairs: list[tuple[bytes, bytes]], length: int | None) -> None:
    assert length_of(pairs) == length


@pytest.mark.parametrize(
    "pairs",
    [
        [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"5"), (b"content-length", b"6")],
        [(b"content-length", b"+5")],
        [(b"content-length", b"5, 5")],
        [(b"content-length", b"9" * 19)],
        [(b"transfer-encoding", b"gzip, chunked")],
        [(b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"identity")],
    ],
)
def test_a_length_that_can_be_read_in_two_ways(pairs: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Fault) as error:
        length_of(pairs)
    assert error.value.status == 400
