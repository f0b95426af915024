"""Addresses: whose call it is, when proxies stand between.

A header is only as true as the one who wrote it. So the peer of the socket is the client, unless
it is a proxy that was named; then the chain of addresses is walked from the right, from what the
nearest proxy wrote to what anybody may have, as far as the named proxies go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import (
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from typing import NamedTuple

from .forwarded import LONGEST, elements, entries, found

__all__ = ["UNIX", "Address", "Trusted", "canonical", "client_address", "ip_key", "read_address"]

UNIX = "unix"
"""What stands for the address of a peer that has none: the other end of a Unix socket."""

Network = IPv4Network | IPv6Network
Text = str | bytes
Headers = Mapping[str, str] | Iterable[tuple[Text, Text]]

WORDS = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": (
        "127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7",
        "169.254.0.0/16", "fe80::/10",
    ),
}  # fmt: skip
_GLOBAL = IPv6Network("2000::/3")


class Address(NamedTuple):
    """An address by its bits: however it was written, the same one is equal."""

    text: str
    version: int
    value: int


_PORT = r"(?::(?:\d{1,5}|_[\w.-]+))?"
_BRACKETS = re.compile(rf"\[([^\]]*)\]{_PORT}", re.ASCII)
_PLAIN = re.compile(rf"([\d.]+){_PORT}", re.ASCII)


def read_address(text: str) -> Address | None:
    """An address from its text, with or without brackets, zone and port; None if it is none."""
    return _read(text) if len(text) <= LONGEST else None


@lru_cache(maxsize=4096)
def _read(text: str) -> Address | None:
    text = text.strip(" \t")
    if text[:1] == "[":
        found = _BRACKETS.fullmatch(text)
        if not found or ":" not in found[1]:
            return None
        text = found[1]
    elif "." in text and text.count(":") <= 1:
        found = _PLAIN.fullmatch(text)
        if not found:
            return None
        text = found[1]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return Address(str(address), address.version, int(address))


def canonical(ip: str) -> str:
    """The one way to write an address: `[::FFFF:192.0.2.1]:80` is `192.0.2.1`."""
    address = read_address(ip)
    if address is None:
        raise ValueError(f"not an IP address: {ip[:LONGEST]!r}")
    return address.text


@lru_cache(maxsize=4096)
def ip_key(ip: str, v6_prefix: int = 64, v4_prefix: int = 32) -> str:
    """What to count an address by: itself, or of IPv6 its network, `2001:db8::/64`.

    One subscriber has at least a /64 and so more addresses than any memory. What is no address
    stays as it is.
    """
    address = read_address(ip)
    if address is None:
        return ip
    size, prefix = (32, v4_prefix) if address.version == 4 else (128, v6_prefix)
    if not 0 <= prefix <= size:
        raise ValueError(f"a prefix of IPv{address.version} is from 0 to {size}, not {prefix}")
    if prefix == size:
        return address.text
    kind = IPv4Network if address.version == 4 else IPv6Network
    return str(kind((address.value >> (size - prefix) << (size - prefix), prefix)))


class Trusted:
    """The proxies whose word is taken: networks, addresses, `loopback`, `private`, `unix`.

    `header` is the one that they write, in lower case; then no other is read. Any name may be
    given; all but `forwarded` are lists of addresses, as X-Forwarded-For is.

    >>> "10.1.2.3" in Trusted("10.0.0.0/8")
    True
    """

    __slots__ = ("_masks", "header", "networks", "unix")

    def __init__(self, *networks: str | Network, header: str = "") -> None:
        self.unix = UNIX in networks
        self.header = header.strip().lower()
        four: list[IPv4Network] = []
        six: list[IPv6Network] = []
        for given in networks:
            for network in _networks(given):
                if isinstance(network, IPv4Network):
                    four.append(network)
                else:
                    six.append(network)
        merged: list[Network] = [*collapse_addresses(four), *collapse_addresses(six)]
        for network in merged:
            everything = network.prefixlen == 0
            if everything or (isinstance(network, IPv6Network) and network.supernet_of(_GLOBAL)):
                raise ValueError(
                    f"{network} trusts everybody, and so anybody could be anybody: "
                    "name the networks of your own proxies"
                )
        self.networks = tuple(merged)
        masks: dict[tuple[int, int], set[int]] = {}
        for network in merged:
            shift = network.max_prefixlen - network.prefixlen
            bits = int(network.network_address) >> shift
            masks.setdefault((network.version, shift), set()).add(bits)
        self._masks = [(version, shift, bits) for (version, shift), bits in masks.items()]

    def holds(self, address: Address) -> bool:
        """Whether an address is a trusted proxy's."""
        kind, value = address.version, address.value
        for version, shift, bits in self._masks:
            if version == kind and value >> shift in bits:
                return True
        return False

    def __contains__(self, ip: object) -> bool:
        if not ip or ip == UNIX:
            return self.unix
        address = read_address(ip) if isinstance(ip, str) else None
        return address is not None and self.holds(address)

    def __repr__(self) -> str:
        words = [repr(str(network)) for network in self.networks]
        words += [repr(UNIX)] * self.unix
        words += [f"header={self.header!r}"] * bool(self.header)
        return f"Trusted({', '.join(words)})"


def _networks(given: str | Network) -> Iterator[Network]:
    if given == UNIX:
        return
    if given == "*":
        raise ValueError("'*' trusts everybody: name the networks of your own proxies")
    for text in WORDS.get(given, (given,)) if isinstance(given, str) else (given,):
        try:
            network = ip_network(text)
        except ValueError as error:
            words = ", ".join(map(repr, (*WORDS, UNIX)))
            raise ValueError(
                f"a trusted proxy is a network such as '10.0.0.0/8', an address, or one of "
                f"{words}: {error}"
            ) from None
        if isinstance(network, IPv6Network):
            mapped = network.network_address.ipv4_mapped
            if mapped is not None and network.prefixlen >= 96:
                network = IPv4Network((int(mapped), network.prefixlen - 96))
        yield network


def client_address(peer: str | None, headers: Headers, trusted: Trusted | None = None) -> str:
    """The client's address in canonical form; it never fails, whatever the headers say.

    `headers` is a mapping with lower-case names (or a framework's own), or pairs of name and
    value, as texts or bytes. An entry that is no address ends the walk: the client is then the
    proxy that reported it. So it is when Forwarded and X-Forwarded-For are both there and
    disagree, for proxies let pass what they do not write. A peer without an address is `unix`,
    and one that is no address keeps its name.
    """
    address = read_address(peer) if peer else None
    near = address.text if address is not None else peer or UNIX
    if trusted is None or near not in trusted:
        return near
    names = (trusted.header,) if trusted.header else ("x-forwarded-for", "forwarded")
    told = {
        _walked(elements(text) if name == "forwarded" else entries(text), near, trusted)
        for name, text in found(headers, names)
    }
    return told.pop() if len(told) == 1 else near


def _walked(chain: Iterator[str], near: str, trusted: Trusted) -> str:
    """The first from the right that is not trusted, or the last before something unreadable."""
    for entry in chain:
        address = read_address(entry)
        if address is None:
            break
        near = address.text
        if not trusted.holds(address):
            break
    return near
