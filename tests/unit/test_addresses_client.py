"""Client addresses: by bits, behind named proxies, and never by what a client says of itself."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from headgate.addresses import Trusted, canonical, client_address, ip_key, read_address

PROXIES = Trusted("10.0.0.0/8", "2001:db8:ffff::/48")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        (" 192.0.2.1\t", "192.0.2.1"),
        ("192.0.2.1:5678", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:0201", "192.0.2.1"),
        ("0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("[::1]:80", "::1"),
        ("[::1]:_hidden", "::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:80", "fe80::1"),
        ("::192.0.2.1", "::c000:201"),
    ],
)
def test_canonical(text: str, address: str) -> None:
    assert canonical(text) == address
    assert canonical(canonical(text)) == address


@pytest.mark.parametrize(
    "text",
    ["", " ", "localhost", "192.0.2", "192.0.2.256", "010.0.0.1", "1.2.3.4:", "1.2.3.4:x", "0x7f.1",
     "[1.2.3.4]", "[::1", "::1]", "[::1]80", "[]", "1.2.3.4:123456", "\u0661.2.3.4", "1.2.3.4\n",
     "::1%" + "z" * 100, "1" * 100_000, "1.2.3.4%eth0", "\0", "16909060"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    assert read_address(text) is None
    with pytest.raises(ValueError, match="not an IP address"):
        canonical(text)
    assert ip_key(text) == text


def test_keys() -> None:
    assert ip_key("192.0.2.1:80") == "192.0.2.1"
    assert ip_key("::ffff:192.0.2.1") == "192.0.2.1"
    assert ip_key("2001:db8:1:2:3:4:5:6") == "2001:db8:1:2::/64"
    assert ip_key("2001:db8:1:2::9%eth0") == "2001:db8:1:2::/64"
    assert ip_key("2001:db8:1:2::9", v6_prefix=56) == "2001:db8:1::/56"
    assert ip_key("2001:db8::9", v6_prefix=128) == "2001:db8::9"
    assert ip_key("192.0.2.77", v4_prefix=24) == "192.0.2.0/24"
    with pytest.raises(ValueError, match="from 0 to 128, not 129"):
        ip_key("::1", v6_prefix=129)


@pytest.mark.parametrize(
    "everything",
    [
        ["*"],
        ["0.0.0.0/0"],
        ["::/0"],
        ["10.0.0.0/8", "0.0.0.0/0"],
        ["0.0.0.0/1", "128.0.0.0/1"],
        ["::/1", "8000::/1"],
        ["2000::/3"],
        ["::ffff:0.0.0.0/96"],
    ],
)
def test_trusting_everybody_is_refused(everything: list[str]) -> None:
    with pytest.raises(ValueError, match=r"trusts everybody.*name the networks"):
        Trusted(*everything)


@pytest.mark.parametrize("bad", ["10.0.0.1/8", "proxy.example", "", "10.0.0.0/33", "privat"])
def test_a_bad_network_is_explained(bad: str) -> None:
    with pytest.raises(ValueError, match=r"such as '10\.0\.0\.0/8', an address, or one of"):
        Trusted(bad)


def test_trusted() -> None:
    trusted = Trusted(
        "loopback", "::ffff:172.16.0.0/108", ip_network("192.0.2.7"), "unix", header="Forwarded"
    )
    for inside in ("127.9.9.9", "::1", "172.31.0.1", "::ffff:192.0.2.7", "192.0.2.7:1", "unix", ""):
        assert inside in trusted
    for outside in ("192.0.2.8", "172.32.0.1", "::2", "nonsense", None, 7):
        assert (outside in trusted) == (outside is None)
    assert repr(trusted).endswith("'::1/128', 'unix', header='forwarded')")
    assert "192.168.1.1" in Trusted("private")
    assert "unix" not in Trusted("private")
    assert "10.0.0.1" not in Trusted()


@pytest.mark.parametrize(
    ("peer", "listed", "client"),
    [
        ("192.0.2.1", "6.6.6.6", "192.0.2.1"),  # not a proxy: whatever it says
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.9", "192.0.2.9"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.9", "192.0.2.9"),
        ("10.0.0.1", "6.6.6.6,192.0.2.9 , 10.0.0.2", "192.0.2.9"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("::ffff:10.0.0.1", "::ffff:192.0.2.9", "192.0.2.9"),
        ("10.0.0.1", "[2001:DB8::9]:80, [2001:db8:ffff::1]:443", "2001:db8::9"),
        ("10.0.0.1", "192.0.2.9:1234", "192.0.2.9"),
        ("10.0.0.1", "6.6.6.6, garbage, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "6.6.6.6, unknown", "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.9,, ,", "192.0.2.9"),
        ("10.0.0.1", '6.6.6.6, "192.0.2.9"', "10.0.0.1"),
        ("10.0.0.1", ",".join(["10.0.0.2"] * 10_000), "10.0.0.2"),
        ("10.0.0.1", "6.6.6.6" + "," * 100_000, "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6, " + "1" * 1_000_000, "10.0.0.1"),
    ],
)
def test_x_forwarded_for(peer: str, listed: str, client: str) -> None:
    assert client_address(peer, {"x-forwarded-for": listed}, PROXIES) == client
    assert client_address(peer, [(b"X-Forwarded-For", listed.encode())], PROXIES) == client
    assert client_address(peer, {"x-forwarded-for": listed}) == canonical(peer)


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("for=192.0.2.9", "192.0.2.9"),
        ("For=192.0.2.9;Proto=https;by=203.0.113.43", "192.0.2.9"),
        ('proto=https; for="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
        ('for="192.0.2.9:80"', "192.0.2.9"),
        ("for=192.0.2.9:80", "192.0.2.9"),
        ('for="192.0.2.9:_port"', "192.0.2.9"),
        ("for=6.6.6.6, for=192.0.2.9", "192.0.2.9"),
        ('for=6.6.6.6, for=192.0.2.9;host="a,b", for=10.0.0.2', "192.0.2.9"),
        (r'for="192.0.2.\9"', "192.0.2.9"),
        ("for=192.0.2.9;;", "192.0.2.9"),
        ("for=6.6.6.6, for=_hidden", "10.0.0.1"),
        ("for=6.6.6.6, for=unknown, for=10.0.0.2", "10.0.0.2"),
        ("for=6.6.6.6, proto=https", "10.0.0.1"),
        ('for=6.6.6.6, for="', "10.0.0.1"),
        ('for=6.6.6.6, for=", for=192.0.2.9', "192.0.2.9"),
        ('for=6.6.6.6, for=", for=192.0.2.9, for="[2001:db8:ffff::1]"', "192.0.2.9"),
        (r'for=6.6.6.6, for="\, for=192.0.2.9', "192.0.2.9"),
        ("for=6.6.6.6, for=192.0.2.9;for=192.0.2.8", "10.0.0.1"),
        ("for=6.6.6.6, for = 192.0.2.9", "10.0.0.1"),
        ("192.0.2.9", "10.0.0.1"),
        ("for=6.6.6.6\n", "10.0.0.1"),
        ("\n", "10.0.0.1"),
        ('for="' + "," * 100_000 + '"', "10.0.0.1"),
        ('for=192.0.2.9;x="' + "\\" * 100_000, "10.0.0.1"),
        (";" * 500, "10.0.0.1"),
    ],
)
def test_forwarded(said: str, client: str) -> None:
    assert client_address("10.0.0.1", {"forwarded": said}, PROXIES) == client
    assert client_address("192.0.2.1", {"forwarded": said}, PROXIES) == "192.0.2.1"


def test_both_headers() -> None:
    both = {"forwarded": "for=6.6.6.6", "x-forwarded-for": "192.0.2.9"}
    assert client_address("10.0.0.1", both, PROXIES) == "10.0.0.1"
    agreed = {"forwarded": 'for="192.0.2.9:80"', "x-forwarded-for": "6.6.6.6, 192.0.2.9"}
    assert client_address("10.0.0.1", agreed, PROXIES) == "192.0.2.9"
    empty = {"forwarded": " , ", "x-forwarded-for": "192.0.2.9"}
    assert client_address("10.0.0.1", empty, PROXIES) == "192.0.2.9"
    named = Trusted("10.0.0.0/8", header="X-Forwarded-For")
    assert client_address("10.0.0.1", both, named) == "192.0.2.9"
    named = Trusted("10.0.0.0/8", header="forwarded")
    assert client_address("10.0.0.1", both, named) == "6.6.6.6"
    assert client_address("10.0.0.1", {"x-forwarded-for": "6.6.6.6"}, named) == "10.0.0.1"
    other = Trusted("10.0.0.0/8", header="CF-Connecting-IP")
    assert client_address("10.0.0.1", {"cf-connecting-ip": "192.0.2.9"}, other) == "192.0.2.9"


class Many(dict[str, list[str]]):
    """As frameworks have it: `get` gives one line of several."""

    def getlist(self, name: str) -> list[str]:
        return self[name]


class All(dict[str, list[str]]):
    def getall(self, name: str) -> list[str]:
        return self[name]


@pytest.mark.parametrize("kind", [Many, All])
def test_several_lines_are_one_list(kind: type[Many] | type[All]) -> None:
    lines = ["6.6.6.6", "192.0.2.9", "10.0.0.2"]
    pairs = [("X-Forwarded-For", line) for line in lines]
    assert client_address("10.0.0.1", pairs, PROXIES) == "192.0.2.9"
    headers = kind({"x-forwarded-for": lines})
    assert client_address("10.0.0.1", headers, PROXIES) == "192.0.2.9"  # type: ignore[arg-type]
    split = [(b"forwarded", b'for=6.6.6.6, for="'), (b"forwarded", b"for=192.0.2.9")]
    assert client_address("10.0.0.1", split, PROXIES) == "192.0.2.9"


@pytest.mark.parametrize("peer", ["", None])
def test_unix_sockets(peer: str | None) -> None:
    headers = {"x-forwarded-for": "192.0.2.9"}
    assert client_address(peer, headers) == "unix"
    assert client_address(peer, headers, Trusted("private")) == "unix"
    assert client_address(peer, headers, Trusted("unix")) == "192.0.2.9"
    assert client_address(peer, {}, Trusted("unix")) == "unix"


def test_a_peer_that_is_no_address_keeps_its_name() -> None:
    assert client_address("testclient", {"x-forwarded-for": "6.6.6.6"}, PROXIES) == "testclient"
