"""Addresses: `headgate://host:8080?token=...&budget=20ms`, read into a place and options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from ...errors import StoreError
from ..words import seconds_of, whole_of, yes_of

__all__ = ["Options", "Place", "read_address", "safe"]

PORT = 8080
SCHEMES = ("headgate", "headgates", "headgate+unix")


@dataclass(frozen=True, slots=True)
class Options:
    """What a store of a service can be told, in its URL or as arguments."""

    budget: float = 0.020
    """Seconds within which every call answers or raises."""
    connect_timeout: float = 2.0
    """Seconds that connecting may take; only the first one is on a caller's path."""
    on_error: str = "local"
    nodes: int = 1
    cache: bool = True
    write_back: bool = False
    coalesce: bool = True
    token: str | None = None
    token_file: str | None = None
    """Where the token is read from, each time a connection is made."""
    ssl_ca_certs: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None

    def __post_init__(self) -> None:
        for name in ("budget", "connect_timeout"):
            seconds = getattr(self, name)
            if not 0 < seconds <= 3600:
                raise ValueError(f"{name} is a time above 0, such as 20ms, not {seconds!r}")
        if self.on_error not in ("allow", "deny", "local"):
            raise ValueError(f"on_error is allow, deny or local, not {self.on_error!r}")
        if isinstance(self.nodes, bool) or self.nodes < 1:
            raise ValueError(f"nodes is a whole number from 1 on, not {self.nodes!r}")
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token_file exclude each other")
        if self.token is not None and not _is_token(self.token):
            raise ValueError("token is a word of visible ASCII characters")

    def changed(self, **given: Any) -> Options:
        """These options with others in place of some; None leaves one as it is."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def bearer(self) -> str:
        """The token, or ""; a StoreError if it cannot be read."""
        if self.token_file is None:
            return self.token or ""
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"the token cannot be read: {error}") from None
        if not _is_token(token):
            raise StoreError(f"{self.token_file} holds no token")
        return token


class Place(NamedTuple):
    """Where a service is."""

    host: str
    port: int
    tls: bool = False
    socket: str = ""
    """The path of a Unix socket, in place of host and port."""
    root: str = ""
    """What stands in front of every path, without a slash at its end."""

    def __str__(self) -> str:
        if self.socket:
            return f"headgate+unix://{self.socket}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"headgate{'s' * self.tls}://{host}:{self.port}{self.root}"


def _is_token(text: str) -> bool:
    return re.fullmatch(r"[\x21-\x7e]{1,4096}", text) is not None


_READERS: dict[str, Callable[[str], Any]] = {
    "budget": seconds_of, "connect_timeout": seconds_of, "on_error": str, "nodes": whole_of,
    "cache": yes_of, "write_back": yes_of, "coalesce": yes_of, "token": str, "token_file": str,
    "ssl_ca_certs": str, "ssl_certfile": str, "ssl_keyfile": str,
}  # fmt: skip
assert set(_READERS) == {field.name for field in fields(Options)}


def safe(address: str) -> str:
    """An address that can be shown: without its token."""
    return re.sub(r"([?&]token=)[^&#]*", r"\1***", address)


def read_address(address: str) -> tuple[Place, Options]:
    """Where the service is, and the store's options."""
    try:
        return _read(address)
    except ValueError as error:
        raise StoreError(f"{safe(address)!r}: {error}") from None


def _read(address: str) -> tuple[Place, Options]:
    scheme, mark, rest = address.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ValueError(f"an address begins with {known}")
    if re.fullmatch(r"[\x21-\x7e]*", rest) is None:
        raise ValueError("an address has visible characters of ASCII alone; others are %-encoded")
    if "#" in rest:
        raise ValueError("'#' is written as %23, and options follow a '?'")
    parts = urlsplit(f"x://{rest}")
    if "@" in parts.netloc:
        raise ValueError("there is no login; a token is given as ?token=... or ?token_file=...")
    options: dict[str, Any] = {}
    tls = scheme == "headgates"
    query = parts.query
    for name, text in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
        if name != "tls" and name not in _READERS:
            raise ValueError(f"no option {name!r}; known are {', '.join(_READERS)}, tls")
        if name in options:
            raise ValueError(f"{name!r} is given twice")
        try:
            options[name] = yes_of(text) if name == "tls" else _READERS[name](text)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    if options.pop("tls", tls) != tls:
        if tls:
            raise ValueError("headgates:// is always by TLS; write headgate:// for none")
        tls = True
    path = unquote(parts.path)
    if scheme == "headgate+unix":
        if parts.netloc or not path.strip("/"):
            raise ValueError("a socket's path begins with a third slash, as in "
                             "headgate+unix:///run/headgate.sock")  # fmt: skip
        return Place("localhost", 0, tls, os.fspath(path)), Options(**options)
    host, port = _host(parts.netloc)
    return Place(host, port, tls, "", parts.path.rstrip("/")), Options(**options)


def _host(text: str) -> tuple[str, int]:
    # An IPv6 address stands in brackets, since it has colons of its own.
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?", text)
    if match is None or (match[3] is not None and not 0 < int(match[3]) < 65536):
        raise ValueError(f"a host is written as name, name:{PORT} or [::1]:{PORT}, not {text!r}")
    return match[1] or match[2], int(match[3] or PORT)
