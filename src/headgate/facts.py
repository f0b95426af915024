"""Facts: what an adapter knows about a call, before anybody decides on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

__all__ = ["Facts"]

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Facts:
    """One call: who asks for what, and in which way.

    >>> Facts(method="POST", path="/login", ip="192.0.2.7").path
    '/login'
    """

    __slots__ = (
        "api_key",
        "args",
        "attributes",
        "chain",
        "device",
        "domain",
        "entries",
        "headers",
        "host",
        "ip",
        "method",
        "origin",
        "params",
        "path",
        "priority",
        "resource",
        "route",
        "size",
        "user",
    )  # fmt: skip

    def __init__(
        self,
        *,
        method: str = "",
        path: str = "",
        host: str = "",
        resource: str = "",
        route: str = "",
        headers: Mapping[str, str] = NOTHING,
        ip: str = "",
        user: str = "",
        device: str = "",
        api_key: str = "",
        origin: str = "",
        params: Mapping[str, str] = NOTHING,
        args: Mapping[str, Any] = NOTHING,
        attributes: Mapping[str, Any] = NOTHING,
        entries: Sequence[tuple[str, str]] = (),
        domain: str = "",
        chain: Sequence[str] = (),
        size: int = 0,
        priority: int = 0,
    ) -> None:
        self.method = method
        """In capitals, as HTTP writes it."""
        self.path = path
        """Decoded and normalised by the adapter: see `headgate.paths`."""
        self.host = host
        self.resource = resource
        """What is protected, where it is not an HTTP path: a function, a queue, a dependency."""
        self.route = route
        """The framework's pattern that the path matched."""
        self.headers = headers
        """By lower-case name; several of one name are joined by ", "."""
        self.ip = ip
        """The client's address, already judged: see `headgate.addresses`."""
        self.user = user
        self.device = device
        self.api_key = api_key
        self.origin = origin
        """The service that calls."""
        self.params = params
        """Parameters in the path."""
        self.args = args
        """Arguments of the call by name; of a plain call also by place: "0", "1"."""
        self.attributes = attributes
        """What is known of the user: the plan, the country, a role."""
        self.entries = entries
        """A descriptor as Envoy sends it: pairs of key and value."""
        self.domain = domain
        self.chain = chain
        """The resources that were entered before this one, the outermost first."""
        self.size = size
        """Bytes of the body, as far as they are known beforehand."""
        self.priority = priority
        """Who goes first among those who wait; 0 leaves it to the rules."""
