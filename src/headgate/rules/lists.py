"""Lists: who is named by an origin, a user or a network, asked in constant time."""

from __future__ import annotations

import socket
from collections.abc import Callable

from ..facts import Facts
from .model import Lists

__all__ = ["Networks", "named_by"]

_MAPPED = 0xFFFF << 32  # ::ffff:0:0/96, the version 4 addresses within version 6


class Networks:
    """Networks of addresses, grouped by how long their prefixes are."""

    __slots__ = ("_four", "_six")

    def __init__(self, texts: tuple[str, ...]) -> None:
        from ipaddress import IPv6Network, ip_network  # only those with networks pay for it

        four: dict[int, set[int]] = {}
        six: dict[int, set[int]] = {}
        for text in texts:
            network = ip_network(text, strict=False)
            groups, prefix, start = four, network.prefixlen, int(network.network_address)
            if isinstance(network, IPv6Network):
                if prefix >= 96 and start >> 32 == 0xFFFF:
                    prefix, start = prefix - 96, start - _MAPPED
                else:
                    groups = six
            shift = (32 if groups is four else 128) - prefix
            groups.setdefault(shift, set()).add(start >> shift)
        self._four = tuple(four.items())
        self._six = tuple(six.items())

    def __contains__(self, ip: str) -> bool:
        groups = self._four
        try:
            if ":" in ip:
                address = int.from_bytes(socket.inet_pton(socket.AF_INET6, ip), "big")
                if address >> 32 == 0xFFFF:
                    address -= _MAPPED
                else:
                    groups = self._six
            else:
                address = int.from_bytes(socket.inet_pton(socket.AF_INET, ip), "big")
        except (OSError, ValueError):  # no address: a call without one, or a socket's name
            return False
        return any(address >> shift in starts for shift, starts in groups)


class _Any(frozenset[str]):
    """`*`: every name, as long as there is one."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return bool(name)


def _names(texts: tuple[str, ...]) -> frozenset[str]:
    return _Any(texts) if "*" in texts else frozenset(texts) - {""}


def named_by(lists: Lists | None) -> Callable[[Facts], bool] | None:
    """Whether a call is on the lists, as a question; None if nobody is."""
    if lists is None:
        return None
    origins, users = _names(lists.origins), _names(lists.users)
    networks = Networks(lists.networks) if lists.networks else None
    if not (origins or users or networks):
        return None

    def listed(facts: Facts) -> bool:
        return (
            facts.origin in origins
            or facts.user in users
            or (networks is not None and facts.ip in networks)
        )

    return listed
