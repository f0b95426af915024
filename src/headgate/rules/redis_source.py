"""Rules in Redis or Valkey: one writer publishes them, all nodes follow within a second."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..errors import StoreError, StoreUnavailable
from .either import read_either
from .following import Name, Read, Source
from .lines import SIZE
from .reading import digest_of

__all__ = ["RedisSource"]

OPTIONS = {
    "budget", "connect_timeout", "prefix", "tag", "on_error", "nodes", "cache", "coalesce",
    "write_back",
}  # fmt: skip
"""Of a store's address; they mean nothing to rules, so that one address serves both."""
REPORT = 10.0
"""Seconds after which a node says again that it is there."""
GONE = 60.0
"""Seconds of silence after which it is taken to be gone."""


class RedisSource(Source):
    """Rules that lie in one hash of a server: the text, its version, and when it was published.

    `address` is a URL, as a store has it, or a client of redis-py or valkey-py.
    """

    kind = "redis"
    every = 0.3

    def __init__(
        self,
        address: Any,
        key: str = "hg:rules",
        *,
        timeout: float = 0.5,
        read: Read = read_either,
        status_file: Name | None = None,
    ) -> None:
        self.key = key
        self.timeout = timeout
        self._address = address
        self._client: Any = None if isinstance(address, str) else _checked(address)
        self._version = b""
        self._reported = float("-inf")
        where = _shown(address) if isinstance(address, str) else type(address).__name__
        super().__init__(f"{where} {key}", read, status_file)

    def publish(self, text: str | bytes, *, name: str = "rules.yaml") -> str:
        """Put new rules there for all nodes, and return their version.

        They are read first: what is broken is raised, and not published. The name's ending says
        which format the text has.
        """
        self._read(text, name=name)
        version = digest_of(text)
        self._ask(
            "hset", self.key,
            mapping={"text": text, "version": version, "name": name, "at": f"{time.time():.3f}"},
        )  # fmt: skip
        return version

    def published(self) -> dict[str, Any]:
        """What lies there: text, version, name, at (seconds since the epoch); empty if nothing."""
        fields = ("text", "version", "name", "at")
        held = [_bytes(value) for value in self._ask("hmget", self.key, list(fields))]
        if held[0] is None:
            return {}
        found: dict[str, Any] = dict(zip(fields, held, strict=True))
        for field in ("version", "name", "at"):
            found[field] = (found[field] or b"").decode(errors="replace")
        return found

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The status of every process that follows these rules, by its host and number."""
        found = {}
        for name, held in self._ask("hgetall", f"{self.key}:nodes").items():
            status = json.loads(held)
            if time.time() - status["written_at"] < GONE:
                found[(_bytes(name) or b"").decode(errors="replace")] = status
            else:
                self._ask("hdel", f"{self.key}:nodes", name)
        return found

    def _changed(self) -> None:
        super()._changed()
        self._reported = float("-inf")

    def _report(self) -> None:
        """Tell the server how far this process is, at a change and now and then."""
        now = time.monotonic()
        if now - self._reported < REPORT or not self._started:
            return
        self._reported = now
        name = f"{socket.gethostname()}:{os.getpid()}"
        held = json.dumps({**self.status(), "written_at": time.time()})
        with contextlib.suppress(StoreError):  # a login that may only read follows all the same
            self._ask("hset", f"{self.key}:nodes", name, held)
            self._ask("expire", f"{self.key}:nodes", 86_400)

    def _fetch(self, again: bool) -> tuple[bytes, str] | None:
        version = _bytes(self._ask("hget", self.key, "version"))
        if version is not None and version == self._version and not again:
            self._recover()
            self._report()
            return None
        # Both are read at once: the text belongs to this version, whatever is written meanwhile.
        text, version, name = (
            _bytes(value) for value in self._ask("hmget", self.key, ["text", "version", "name"])
        )
        if text is None:
            raise StoreError(f"there are no rules under {self.key!r}: publish some")
        self._version = version or b""
        name = name or b""
        # Nobody's file: where it was published from says only which format it has, and nothing
        # lies beside it here.
        name = os.path.basename(name)
        return text[: SIZE + 1], name.decode(errors="replace") or "rules.yaml"

    def _ask(self, command: str, *values: Any, **more: Any) -> Any:
        if self._client is None:
            self._client = _open(self._address, self.timeout)
        try:
            return getattr(self._client, command)(*values, **more)
        except Exception as error:  # of redis-py or valkey-py, whichever it is
            theirs = type(error).__module__.partition(".")[0] in ("redis", "valkey")
            if not theirs and not isinstance(error, OSError):
                raise
            raise StoreUnavailable(f"{type(error).__name__}: {error}") from error

    def _reset(self) -> None:
        self._version = b""
        self._reported = float("-inf")
        if isinstance(self._address, str):
            self._client = None  # the parent's connections are not used

    def stop(self) -> None:
        """Follow them no more; a connection of its own is closed."""
        super().stop()
        if isinstance(self._address, str) and self._client is not None:
            client, self._client = self._client, None
            client.close()


def _open(address: str, timeout: float) -> Any:
    """A client for an address as stores have it."""
    try:
        import redis
    except ImportError:
        raise StoreError("rules in Redis need redis-py: pip install 'headgate[redis]'") from None
    parts = urlsplit(address)
    found = re.fullmatch(r"(?:redis|valkey)(s?)(\+unix|\+cluster|\+sentinel|)", parts.scheme)
    if found is None:
        raise StoreError(f"{_shown(address)!r}: an address begins with redis:// or rediss://")
    query = [pair for pair in parse_qsl(parts.query) if pair[0] not in OPTIONS]
    scheme = "unix" if found[2] == "+unix" else f"redis{found[1]}"
    plain = f"{scheme}://{parts.netloc}{parts.path}?{urlencode(query)}".rstrip("?")
    times = {"socket_timeout": timeout, "socket_connect_timeout": max(timeout, 1.0)}
    try:
        if found[2] == "+cluster":
            login, at, hosts = parts.netloc.rpartition("@")
            plain = plain.replace(parts.netloc, login + at + hosts.split(",")[0], 1)
            return redis.RedisCluster.from_url(plain, **times)
        if found[2] == "+sentinel":
            return _behind_sentinels(redis.Sentinel, parts, times, tls=bool(found[1]))
        return redis.Redis.from_url(plain, **times)
    except redis.RedisError as error:
        raise StoreUnavailable(f"{type(error).__name__}: {error}") from error
    except ValueError as error:
        raise StoreError(f"{_shown(address)!r}: {error}") from None


def _behind_sentinels(sentinel: Any, parts: Any, times: dict[str, float], *, tls: bool) -> Any:
    login, _, hosts = parts.netloc.rpartition("@")
    places = []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":") if ":" in host else (host, "", "26379")
        places.append((name, int(port)))
    service, _, database = parts.path.strip("/").partition("/")
    user, colon, password = login.partition(":")
    more = {"username": user or None, "password": password} if colon else {}
    return sentinel(places, sentinel_kwargs=dict(times)).master_for(
        service, db=int(database or 0), ssl=tls, **more, **times
    )


def _checked(client: Any) -> Any:
    if not callable(getattr(client, "hget", None)):
        raise TypeError(f"a URL or a client of redis-py is needed, not {type(client).__name__}")
    if "asyncio" in type(client).__module__:
        raise TypeError("a source follows in a thread: give it a URL or a client without asyncio")
    return client


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _shown(address: str) -> str:
    """An address without its password and options."""
    return re.sub(r"://[^/@]*@", "://", address.partition("?")[0])
