"""Plan: where a gateway passes calls on to, and within which times and sizes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ..addresses import Trusted
from ..service.settings import SettingsError

__all__ = ["Plan", "Target"]


class Target(NamedTuple):
    """An upstream's address, in its parts."""

    scheme: str
    host: str
    port: int | None
    prefix: str
    """What stands before every path; without a slash at its end."""
    socket: str
    """The path of a Unix socket, if that is where it listens."""

    @classmethod
    def parse(cls, url: str) -> Target:
        """`http://host:port/prefix`, `https://...`, or `unix:/run/app.sock`."""
        if url.startswith("unix:") and url[5:]:
            return cls("http", "localhost", None, "", unquote(url[5:]))
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise SettingsError(f"upstream {url!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(
                f"an upstream is http://host:port, https://host or unix:/run/app.sock, not {url!r}"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise SettingsError(f"an upstream has no user, query or fragment: {url!r}")
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), "")

    @property
    def authority(self) -> str:
        """The host as a Host header names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How calls are passed on. Times are seconds; 0 is without end."""

    upstream: str
    host: str = ""
    """`keep` the client's Host, or the `upstream`'s; kept unless the upstream speaks TLS."""
    trusted: Trusted | None = None
    """Proxies in front of the gateway, whose word on where a call comes from is taken."""
    connect: float = 5.0
    """Until there is a connection, a free one of the pool or a new one."""
    first_byte: float = 60.0
    """From the end of the request to the beginning of the response."""
    between: float = 60.0
    """Without a byte in either direction, whoever is to send it or to take it."""
    total: float = 0.0
    keepalive: float = 4.0
    """For how long an idle connection is kept; shorter than the upstream keeps it."""
    connections: int = 0
    """So many connections to the upstream at most; 0 is as many as there are calls."""
    max_body: int = 0
    """Of a request, in bytes; 0 is any."""
    max_head: int = 64 << 10
    """Of the upstream's headers, each line."""
    tls: ssl.SSLContext | None = None
    """How an upstream's certificate is checked; by the system's authorities unless it is said."""
    health: str = ""
    """A path that the gateway answers itself, uncounted."""

    def __post_init__(self) -> None:
        Target.parse(self.upstream)
        if self.host not in ("", "keep", "upstream"):
            raise SettingsError(f"host is keep or upstream, not {self.host!r}")
        for what in ("connect", "first_byte", "between", "total", "keepalive", "connections",
                     "max_body"):  # fmt: skip
            if not getattr(self, what) >= 0:
                raise SettingsError(f"{what} is 0 or more, not {getattr(self, what)}")
        if self.health and not self.health.startswith("/"):
            raise SettingsError(f"the path of the health check begins with /, not {self.health!r}")

    @property
    def keeps_host(self) -> bool:
        """Whether the client's Host is passed on."""
        return self.host == "keep" or (not self.host and not self.upstream.startswith("https:"))
