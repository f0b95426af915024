"""Heads: which headers pass through a proxy, and which it writes itself (RFC 9110, 7.6).

What a header says of the way a call came is only as true as the one who wrote it. So of a peer
that is no trusted proxy all of that is thrown away, and written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..addresses import Trusted, read_address
from ..service.faults import Fault

__all__ = ["Pairs", "request_head", "response_head"]

Pairs = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
))  # fmt: skip
WRITTEN = frozenset((b"host", b"content-length", b"expect", b"via"))
"""What a request gets from us in any case, or not at all."""
LISTS = (b"x-forwarded-for", b"forwarded")
NAME = b"headgate"
MOST_PASSES = 8
"""A call that has come through so many of us is going round in circles."""

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+)(:[0-9]{0,5})?")


def _named(pairs: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers of one connection: the usual, and those which Connection names."""
    lines = [value for name, value in pairs if name == b"connection"]
    if not lines:
        return HOP_BY_HOP
    names = (name.strip().lower() for line in lines for name in line.split(b","))
    return HOP_BY_HOP.union(names)


def _tells_the_way(name: bytes) -> bool:
    """Whether a header says where a call comes from; some read `_` in its name as `-`."""
    if b"_" in name:
        name = name.replace(b"_", b"-")
    return name.startswith(b"x-forwarded-") or name in (b"forwarded", b"x-real-ip")


def request_head(
    pairs: Pairs, peer: str | None, scheme: str, trusted: Trusted | None, host: str
) -> list[tuple[str, str]]:
    """The headers of a call on its way to the upstream; a Fault if they cannot be passed on.

    pairs   as they came, the names in small letters
    host    what the upstream is told as Host; "" keeps the client's
    """
    dropped = _named(pairs)
    believed = trusted is not None and (peer or "unix") in trusted
    given = _host_of(pairs)
    head: Pairs = [(b"host", host.encode() if host else given or b"localhost")]
    way: dict[bytes, list[bytes]] = {}
    passes: list[bytes] = []
    for name, value in pairs:
        if name == b"via":
            passes.append(value)
        elif name in dropped or name in WRITTEN:
            continue
        elif not _tells_the_way(name):
            head.append((name, value))
        elif believed and b"_" not in name:
            way.setdefault(name, []).append(value)
    if b",".join(passes).lower().count(NAME) >= MOST_PASSES:
        raise Fault(508, "This call goes round in circles: the upstream leads back to here.")
    head += _way(way, peer, scheme, given, trusted if believed else None)
    head.append((b"via", b", ".join([*passes, b"1.1 " + NAME])))
    try:
        return [(name.decode(), value.decode()) for name, value in head]
    except UnicodeDecodeError:
        raise Fault(400, "A header is neither ASCII nor UTF-8.") from None


def _host_of(pairs: Pairs) -> bytes:
    """The one Host of a request."""
    hosts = [value for name, value in pairs if name == b"host"]
    if len(hosts) > 1 or (hosts and hosts[0] and not _HOST.fullmatch(hosts[0])):
        raise Fault(400, "A request has one Host, and a readable one.")
    return hosts[0] if hosts else b""


def _way(
    way: dict[bytes, list[bytes]], peer: str | None, scheme: str, host: bytes,
    trusted: Trusted | None,
) -> Pairs:  # fmt: skip
    """What is told of the way; `way` is what a trusted proxy said already."""
    lists = {name: way.pop(name) for name in LISTS if name in way}
    if trusted is not None and trusted.header:  # the proxy writes this one, and passes others on
        kept = trusted.header.encode("latin-1", "replace")
        lists = {name: lines for name, lines in lists.items() if name == kept}
    told = [(name, value) for name, values in way.items() for value in values]
    # A second list that begins only here would contradict the first.
    for name in lists or LISTS:
        lines = lists.get(name, [])
        last = _element(peer, scheme, host) if name == b"forwarded" else _address(peer)
        if last:
            lines = [*lines, last]
        if lines:
            told.append((name, b", ".join(lines)))
    if b"x-forwarded-proto" not in way:
        told.append((b"x-forwarded-proto", scheme.encode()))
    if b"x-forwarded-host" not in way and host:
        told.append((b"x-forwarded-host", host))
    return told


def _address(peer: str | None) -> bytes:
    """An address as X-Forwarded-For has it; a peer without one is not told of."""
    found = read_address(peer) if peer else None
    return b"" if found is None else found.text.encode()


def _element(peer: str | None, scheme: str, host: bytes) -> bytes:
    """An element of Forwarded (RFC 7239)."""
    found = read_address(peer) if peer else None
    said = []
    if found is not None:
        said.append(f'for="[{found.text}]"' if found.version == 6 else f"for={found.text}")
    elif not host:
        return b""
    if host:
        said.append(f'host="{host.decode("latin-1")}"')
    said.append(f"proto={scheme}")
    return ";".join(said).encode()


def response_head(raw: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """The headers of an upstream's response, as the client gets them."""
    pairs = [(name.lower(), value) for name, value in raw]
    dropped = _named(pairs)
    chunked = any(name == b"transfer-encoding" for name, _ in pairs)
    # Of two words on the length of a body only one can be true, and that is not this one.
    return [
        (name, value)
        for name, value in pairs
        if name not in dropped and not (chunked and name == b"content-length")
    ]
