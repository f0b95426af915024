"""Storages for tasks."""

from __future__ import annotations

from typing import Any

from ... import NotOffered
from .. import storage as plain

__all__ = [
    "AsyncStorage",
    "MemcachedStorage",
    "MemoryStorage",
    "MongoDBStorage",
    "RedisClusterStorage",
    "RedisSentinelStorage",
    "RedisStorage",
    "Storage",
    "only_ours",
]

MemcachedStorage = plain.MemcachedStorage
MongoDBStorage = plain.MongoDBStorage


class AsyncStorage:
    """A storage whose store is awaited."""

    def __init__(self, storage: plain.Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def check(self) -> bool:
        """Whether the store answers by itself."""
        return await self._storage.run_async(self._storage.checking())

    async def reset(self) -> int | None:
        """Forget all keys."""
        return self._storage.reset()


Storage = AsyncStorage


class MemoryStorage(AsyncStorage):
    """Counts in this process."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(plain.MemoryStorage(*args, **options))


class RedisStorage(AsyncStorage):
    """Counts on Redis or Valkey."""

    def __init__(self, uri: str, *args: Any, **options: Any) -> None:
        only_ours(options)
        super().__init__(plain.RedisStorage(uri.removeprefix("async+"), *args, **options))


class RedisClusterStorage(RedisStorage):
    """The same on a cluster."""


class RedisSentinelStorage(RedisStorage):
    """The same behind sentinels."""


def only_ours(options: dict[str, Any]) -> None:
    """Take away the words that choose who speaks to the server, if they choose as headgate does."""
    implementation = options.pop("implementation", "redispy")
    if implementation not in ("redispy", "valkey"):
        raise NotOffered(
            f"implementation={implementation!r}: headgate speaks to the server by redis-py or "
            "valkey-py; leave it out"
        )
