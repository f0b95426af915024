"""Addresses: `redis://user:password@host:6379/0?budget=20ms`, read into a target and options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ....errors import StoreError
from ...words import seconds_of, whole_of, yes_of
from .target import Target

__all__ = ["SCHEMES", "Options", "read_address", "safe"]

SCHEMES = {
    "": "single", "s": "single", "+unix": "unix",
    "+sentinel": "sentinel", "s+sentinel": "sentinel",
    "+cluster": "cluster", "s+cluster": "cluster",
}  # fmt: skip
"""What may follow `redis` or `valkey` before the `://`."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a store on a server can be told, in its URL or as arguments."""

    budget: float = 0.020
    """Seconds within which every call answers or raises."""
    connect_timeout: float = 2.0
    """Seconds that connecting may take; only the first one is on a caller's path."""
    prefix: str = "hg"
    tag: str | None = None
    on_error: str = "local"
    nodes: int = 1
    cache: bool = True
    coalesce: bool = True
    write_back: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 3600:
            raise ValueError(f"budget is a time above 0, such as 20ms, not {self.budget!r}")
        if not 0 < self.connect_timeout <= 3600:
            raise ValueError(f"connect_timeout is a time above 0, not {self.connect_timeout!r}")
        if self.on_error not in ("allow", "deny", "local"):
            raise ValueError(f"on_error is allow, deny or local, not {self.on_error!r}")
        if self.nodes < 1:
            raise ValueError(f"nodes is a whole number from 1 on, not {self.nodes!r}")
        for name in ("prefix", "tag"):
            text = getattr(self, name)
            if text is not None and (not text or not set("{}\r\n ").isdisjoint(text)):
                raise ValueError(f"{name} is a word without braces or spaces, not {text!r}")

    def changed(self, **given: Any) -> Options:
        """These options with others in place of some; None leaves one as it is."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


_OURS: dict[str, Callable[[str], Any]] = {
    "budget": seconds_of, "connect_timeout": seconds_of, "prefix": str, "tag": str,
    "on_error": str, "nodes": whole_of, "cache": yes_of, "coalesce": yes_of,
    "write_back": yes_of,
}  # fmt: skip
_CONNECTION: dict[str, Callable[[str], Any]] = {"db": whole_of, "client_name": str}
_SENTINEL: dict[str, Callable[[str], Any]] = {"sentinel_username": str, "sentinel_password": str}
_TLS: dict[str, Callable[[str], Any]] = {
    "ssl_ca_certs": str, "ssl_certfile": str, "ssl_keyfile": str, "ssl_cert_reqs": str,
    "ssl_check_hostname": yes_of,
}  # fmt: skip
assert set(_OURS) == {field.name for field in fields(Options)}


def safe(address: str) -> str:
    """An address that can be shown: without its password."""
    start = address.find("://")
    at = address.rfind("@", start + 3)
    colon = address.find(":", start + 3, at) if at >= 0 else -1
    shown = address if colon < 0 else f"{address[:colon]}:***{address[at:]}"
    return re.sub(r"(sentinel_password=)[^&]*", r"\1***", shown)


def read_address(address: str) -> tuple[Target, Options]:
    """Where the servers are and how to speak to them, and the store's options."""
    try:
        return _read(address)
    except ValueError as error:
        raise StoreError(f"{safe(address)!r}: {error}") from None


def _read(address: str) -> tuple[Target, Options]:
    scheme, mark, _ = address.partition("://")
    match = re.fullmatch(r"(redis|valkey)(s?)(\+unix|\+sentinel|\+cluster|)", scheme.lower())
    if match is None or not mark or match[2] + match[3] not in SCHEMES:
        known = ", ".join(f"redis{rest}://" for rest in SCHEMES)
        raise ValueError(f"an address begins with {known}, or with valkey in place of redis")
    kind, tls = SCHEMES[match[2] + match[3]], bool(match[2])
    # What follows the first slash is cut off by hand: a list of hosts is no host to urlsplit.
    parts = urlsplit("x" + address[len(scheme) :])
    if parts.fragment or "#" in address:
        raise ValueError("'#' is written as %23, and options follow a '?'")
    login, at, hosts = parts.netloc.rpartition("@")
    arguments: dict[str, Any] = {}
    if at:
        user, colon, password = login.partition(":")
        if user:
            arguments["username"] = unquote(user)
        if colon:
            arguments["password"] = unquote(password)
    ours, more = _query(parts.query, kind, tls)
    path = unquote(parts.path)
    service = ""
    places: list[tuple[str, int]] = []
    if kind == "unix":
        if hosts or not path.strip("/"):
            raise ValueError("a socket's path begins with a third slash, as in "
                             "redis+unix:///run/redis.sock")  # fmt: skip
        arguments["path"] = path
    else:
        places = _places(hosts, 26379 if kind == "sentinel" else 6379)
        service = _path(kind, path, more)
        if kind == "single" and len(places) > 1:
            raise ValueError("several hosts are a redis+cluster:// or a redis+sentinel://")
    sentinel = {name[9:]: more.pop(name) for name in list(more) if name in _SENTINEL}
    target = Target(kind, tuple(places), {**arguments, **more}, tls=tls, service=service,
                    sentinel=sentinel, shown=safe(address).partition("?")[0])  # fmt: skip
    return target, Options(**ours)


def _query(query: str, kind: str, tls: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    known = {**_OURS, **_CONNECTION, **(_TLS if tls else {})}
    known |= _SENTINEL if kind == "sentinel" else {}
    ours: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
        if name not in known:
            raise ValueError(f"no option {name!r}; known are {', '.join(known)}")
        found = ours if name in _OURS else more
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        try:
            found[name] = known[name](text)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    return ours, more


def _places(hosts: str, port: int) -> list[tuple[str, int]]:
    places = []
    for text in hosts.split(","):
        # An IPv6 address stands in brackets, since it has colons of its own.
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]@]*))(?::(\d{1,5}))?", text)
        if match is None or (match[3] is not None and not 0 < int(match[3]) < 65536):
            raise ValueError(f"a host is written as name, name:6379 or [::1]:6379, not {text!r}")
        places.append((match[1] or unquote(match[2]) or "localhost", int(match[3] or port)))
    return places


def _path(kind: str, path: str, more: dict[str, Any]) -> str:
    """The sentinel's service, and the database's number put with the other arguments."""
    words = path.strip("/").split("/") if path.strip("/") else []
    service = ""
    if kind == "sentinel":
        if not words:
            raise ValueError("after the sentinels comes the service, as in "
                             "redis+sentinel://host:26379/mymaster/0")  # fmt: skip
        service = words.pop(0)
    if words and (len(words) > 1 or not words[0].isdigit()):
        raise ValueError(f"a database is a number, not {quote('/'.join(words))!r}")
    if words and more.setdefault("db", int(words[0])) != int(words[0]):
        raise ValueError("the database is given twice")
    if kind == "cluster" and more.get("db"):
        raise ValueError("a cluster has only database 0")
    return service
