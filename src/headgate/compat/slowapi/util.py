"""Functions that say whom to count a call for."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request

from ...addresses import Trusted
from ..shared import address_of

__all__ = ["behind", "get_ipaddr", "get_remote_address"]


def get_remote_address(request: Request) -> str:
    """The address of the socket's peer; of IPv6 its network /64."""
    return address_of(request.client.host if request.client else None)


def get_ipaddr(request: Request) -> str:
    """The same: a header that anybody can write is not believed. See `behind`."""
    return get_remote_address(request)


def behind(*proxies: str) -> Callable[[Request], str]:
    """A key function for applications behind proxies: `behind("10.0.0.0/8")`.

    X-Forwarded-For and Forwarded are believed as far as these networks wrote them.
    """
    trusted = Trusted(*proxies)

    def get_client_address(request: Request) -> str:
        peer = request.client.host if request.client else None
        return address_of(peer, request.headers.items(), trusted)

    return get_client_address
