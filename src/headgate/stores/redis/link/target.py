"""Targets: which servers, and connections to them, of the kind that redis-py makes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....errors import StoreError

__all__ = ["Place", "Target", "target_of"]

Place = tuple[str, int]

# What a connection of ours takes over from a client's; the rest (decoding, retries, time-outs,
# caches) is for the client's own calls.
_KEPT = (
    "host", "port", "path", "db", "username", "password", "credential_provider", "client_name",
    "socket_keepalive", "socket_keepalive_options", "socket_type",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One server, the sentinels of one, or seeds of a cluster; and how to log in there."""

    kind: str
    """single, unix, sentinel or cluster"""
    places: tuple[Place, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tls: bool = False
    service: str = ""
    sentinel: Mapping[str, Any] = field(default_factory=dict)
    """How to log in at the sentinels."""
    shown: str = ""
    """How messages name it."""
    package: str = "redis"
    """The package that makes the connections: redis, or valkey for a client of its own."""
    special: Any = None
    """A connection class of the user's own, and None for those of the package."""
    remap: Callable[[Place], Place] | None = None
    """Where a cluster's node is really reached."""

    def connection(self, place: Place | None, timeout: float, *, aio: bool = False) -> Any:
        """A new connection of redis-py's own, not connected yet."""
        arguments = dict(self.arguments)
        if place is not None:
            arguments["host"], arguments["port"] = place
        arguments.update(
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            protocol=2,
            decode_responses=False,
            retry_on_timeout=False,
            health_check_interval=0,
        )
        # Nobody needs two more round trips to tell a server the client's name and version.
        if self.package == "redis" and _has_driver_info():
            arguments["driver_info"] = None
        else:
            arguments.update(lib_name=None, lib_version=None)
        return self._class(aio=aio)(**arguments)

    def load(self) -> None:
        """Import what makes connections: it takes longer than a call may wait for one."""
        if self.special is None:
            self._class(aio=False)

    def _class(self, *, aio: bool) -> Any:
        if self.special is not None:
            if ("asyncio" in self.special.__module__) != aio:
                colour = "async" if aio else "sync"
                raise StoreError(f"{self.special.__name__} cannot make {colour} connections")
            return self.special
        name = "Connection"
        if self.kind == "unix":
            name = "UnixDomainSocketConnection"
        elif self.tls:
            name = "SSLConnection"
        where = "asyncio.connection" if aio else "connection"
        try:
            return getattr(importlib.import_module(f"{self.package}.{where}"), name)
        except ImportError:
            raise StoreError(
                f"{self.shown or 'this store'} needs the package redis: pip install headgate[redis]"
            ) from None


def _has_driver_info() -> bool:
    try:
        import redis.driver_info  # noqa: F401  # came with a later redis-py
    except ImportError:
        return False
    return True


def target_of(client: Any) -> Target:
    """The target that a client of redis-py or valkey-py speaks to."""
    package = type(client).__module__.partition(".")[0]
    for ancestor in type(client).__mro__:  # a subclass of the user's is a client too
        if ancestor.__module__.partition(".")[0] in ("redis", "valkey"):
            package = ancestor.__module__.partition(".")[0]
            break
    else:
        raise TypeError(f"a store is made from a client of redis-py, not {type(client).__name__}")
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        return _of_cluster(client, nodes, package)
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise TypeError(f"a store is made from a client of redis-py, not {type(client).__name__}")
    arguments, tls = _kept(pool.connection_kwargs)
    made = pool.connection_class
    tls = tls or "SSL" in made.__name__
    if hasattr(pool, "sentinel_manager"):
        return _of_sentinel(pool, arguments, package, tls=tls)
    kind, shown = "unix", str(arguments.get("path"))
    places: tuple[Place, ...] = ()
    if "path" not in arguments or "host" in arguments:
        kind, place = "single", (arguments.pop("host", "localhost"), arguments.pop("port", 6379))
        places, shown = (place,), f"{place[0]}:{place[1]}"
    own = made.__module__.partition(".")[0] not in ("redis", "valkey")
    if own:  # it may want arguments that are unknown here
        arguments = {**pool.connection_kwargs, **arguments}
    return Target(kind, places, arguments, tls=tls, shown=shown, package=package,
                  special=made if own else None)  # fmt: skip


def _of_sentinel(pool: Any, arguments: dict[str, Any], package: str, *, tls: bool) -> Target:
    clients = pool.sentinel_manager.sentinels
    given = [sentinel.connection_pool.connection_kwargs for sentinel in clients]
    places = tuple((str(one["host"]), int(one["port"])) for one in given)
    login, _ = _kept(pool.sentinel_manager.sentinel_kwargs)
    arguments = {name: value for name, value in arguments.items() if name not in ("host", "port")}
    service = str(pool.service_name)
    return Target("sentinel", places, arguments, tls=tls, service=service, sentinel=login,
                  shown=f"service {service}", package=package)  # fmt: skip


def _of_cluster(client: Any, nodes: Any, package: str) -> Target:
    given = getattr(nodes, "connection_kwargs", None) or client.connection_kwargs
    arguments, tls = _kept(given)
    tls = tls or "SSL" in getattr(given.get("connection_class"), "__name__", "")
    places = tuple((str(node.host), int(node.port)) for node in nodes.startup_nodes.values())
    arguments = {name: value for name, value in arguments.items() if name not in ("host", "port")}
    remap = getattr(nodes, "address_remap", None)
    return Target("cluster", places, arguments, tls=tls, shown=f"the cluster of {places[0][0]}",
                  package=package, remap=remap)  # fmt: skip


def _kept(given: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    kept = {name: given[name] for name in _KEPT if given.get(name) is not None}
    tls = bool(given.get("ssl"))
    kept |= {name: value for name, value in given.items() if name.startswith("ssl_")}
    if "credential_provider" in kept:  # it stands in place of both
        kept.pop("username", None)
        kept.pop("password", None)
    return kept, tls
