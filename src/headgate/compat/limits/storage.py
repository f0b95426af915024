"""Storages: headgate's stores under the names and addresses of `limits`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from ...decision import Ask
from ...flows import Decide, Flow, run, run_async
from ...limit import Limit
from ...limiter import Limiter
from ...stores import open_store
from .. import NotOffered
from .errors import ConfigurationError

if TYPE_CHECKING:
    from ...clock import Clock

__all__ = [
    "MemcachedStorage",
    "MemoryStorage",
    "MongoDBStorage",
    "RedisClusterStorage",
    "RedisSentinelStorage",
    "RedisStorage",
    "Storage",
    "storage_from_string",
]

Result = TypeVar("Result")
KEPT = 1024
"""How many limits are kept ready; a program that makes up more pays for it by time alone."""
_SPLIT = ("incr", "get", "get_expiry", "acquire_entry", "get_moving_window", "get_sliding_window",
          "acquire_sliding_window_entry", "clear_sliding_window", "clear")  # fmt: skip
_PROBE = Limit(1, per=1).named("probe")


class Storage:
    """A store of headgate's, and the limiters on it."""

    def __init__(self, source: Any, clock: Clock | None = None) -> None:
        self.store = open_store(source, clock)
        self._limiters: dict[Any, Limiter] = {}
        self._lock = threading.Lock()

    def limiter(self, limit: Limit, space: str, on_error: str | None = None) -> Limiter:
        """The limiter of a limit, made when it is first asked for."""
        name = (limit, space, on_error)
        found = self._limiters.get(name)
        if found is None:
            with self._lock:
                if len(self._limiters) >= KEPT:
                    self._limiters.clear()  # state is the store's, so nothing is forgotten
                found = Limiter(limit, store=self.store, name=space, on_error=on_error)
                self._limiters[name] = found
        return found

    def run(self, flow: Flow[Result]) -> Result:
        """Carry out a flow in this thread."""
        return run(flow, self.store)

    async def run_async(self, flow: Flow[Result]) -> Result:
        """Carry out a flow in this task."""
        if self.store.blocking:
            return await run_async(flow, self.store)
        return run(flow, self.store)

    def checking(self) -> Flow[bool]:
        """The flow that finds out whether the store answers by itself."""
        (answer,) = yield Decide([Ask("check", _PROBE)])
        return not answer.degraded

    def check(self) -> bool:
        """Whether the store answers by itself."""
        return self.run(self.checking())

    def reset(self) -> int | None:
        """Forget all keys."""
        raise NotOffered(
            "headgate does not delete all keys of a shared store: clear(item, *identifiers) "
            "forgets one, and redis-cli --scan finds those that begin with the store's prefix"
        )

    def __getattr__(self, name: str) -> Any:
        if name in _SPLIT:
            raise AttributeError(
                f"a storage has no {name} here: a store decides in one step, so use the "
                "strategies' hit, test, get_window_stats and clear"
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")


class MemoryStorage(Storage):
    """Counts in this process."""

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        *,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        _no_more(options, wrap_exceptions)
        super().__init__(uri, clock)

    def reset(self) -> int | None:
        """Forget all keys."""
        with self._lock:
            self._limiters.clear()
            self.store = open_store(None, self.store.clock)
        return None


class RedisStorage(Storage):
    """Counts on Redis or Valkey.

    The options of headgate's store stand in the address, such as `?budget=50ms&on_error=deny`.
    """

    def __init__(
        self,
        uri: str,
        connection_pool: Any = None,
        key_prefix: str | None = None,
        wrap_exceptions: bool = False,
        *,
        socket_timeout: float | None = None,
        socket_connect_timeout: float | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        _no_more(options, wrap_exceptions)
        from ...stores.redis import open_redis

        source: Any = uri
        if connection_pool is not None:
            import redis

            source = redis.Redis(connection_pool=connection_pool)
        words = {"prefix": key_prefix, "budget": socket_timeout}
        words["connect_timeout"] = socket_connect_timeout
        super().__init__(open_redis(source, clock, **words))


class RedisClusterStorage(RedisStorage):
    """The same on a cluster, by `redis+cluster://`."""


class RedisSentinelStorage(RedisStorage):
    """The same behind sentinels, by `redis+sentinel://host:26379/service`."""


class _Away:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotOffered(
            f"headgate has no {type(self).__name__}: what it does needs one atomic step. Use "
            "redis:// for several machines, or zone:///run/app.zone?size=16MiB for one"
        )


class MemcachedStorage(_Away):
    """Not offered."""


class MongoDBStorage(_Away):
    """Not offered."""


def _no_more(options: dict[str, Any], wrap_exceptions: bool) -> None:
    if wrap_exceptions:
        raise NotOffered(
            "wrap_exceptions: a store that is away raises nothing here; ?on_error=allow, deny or "
            "local in its address says what happens then"
        )
    if options:
        raise NotOffered(
            f"options {', '.join(options)}: headgate reads its own from the address, such as "
            "redis://host:6379/0?budget=50ms&connect_timeout=1s, or takes connection_pool="
        )


_SCHEMES: dict[str, type[Any]] = {
    "memory": MemoryStorage, "memcached": MemcachedStorage, "mongodb": MongoDBStorage,
    "mongodb+srv": MongoDBStorage,
}  # fmt: skip
for _server in ("redis", "valkey"):
    for _rest in ("", "s", "+unix"):
        _SCHEMES[_server + _rest] = RedisStorage
    for _rest in ("", "s"):
        _SCHEMES[f"{_server}{_rest}+cluster"] = RedisClusterStorage
        _SCHEMES[f"{_server}{_rest}+sentinel"] = RedisSentinelStorage


def storage_from_string(storage_string: str, **options: Any) -> Any:
    """The storage of an address: `memory://`, `redis://host:6379/0`, or with `async+` before it.

    `zone:///run/app.zone?size=16MiB` counts for all processes of a machine.
    """
    plain = storage_string.removeprefix("async+")
    scheme, _, _ = plain.partition("://")
    awaited = plain != storage_string
    if awaited:
        from .aio.storage import AsyncStorage, only_ours

        only_ours(options)
    clock = options.pop("clock", None)
    found: Any
    if scheme == "zone":
        wraps = options.pop("wrap_exceptions", False)
        _no_more(options, wraps)
        found = Storage(plain, clock)
    elif scheme in _SCHEMES:
        found = _SCHEMES[scheme](plain, clock=clock, **options)
    else:
        known = ", ".join([*(name for name in _SCHEMES if name[0] != "m"), "memory", "zone"])
        raise ConfigurationError(f"unknown storage scheme : {storage_string}; known are {known}")
    return AsyncStorage(found) if awaited else found
