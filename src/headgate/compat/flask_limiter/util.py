"""Functions that say whom to count a call for."""

from __future__ import annotations

from collections.abc import Callable

from flask import request

from ...addresses import Trusted
from ..shared import address_of

__all__ = ["behind", "get_remote_address"]


def get_remote_address() -> str:
    """The address of the socket's peer; of IPv6 its network /64."""
    return address_of(request.remote_addr)


def behind(*proxies: str) -> Callable[[], str]:
    """A key function for applications behind proxies: `behind("10.0.0.0/8")`.

    X-Forwarded-For and Forwarded are believed as far as these networks wrote them.
    """
    trusted = Trusted(*proxies)

    def get_client_address() -> str:
        return address_of(request.remote_addr, request.headers.items(), trusted)

    return get_client_address
