"""Settings: a gateway as a command line describes it, and as other processes are told of it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any

from ..addresses import Trusted
from ..calendar import duration
from ..errors import HeadgateError
from ..integrations.common import Finder
from ..integrations.scopes import Scope
from ..limit import Limit
from ..rules.following import Source
from ..service.settings import Listen, Processes, SettingsError, runtime_folder
from ..service.sources import source_of
from .app import Gateway
from .breaker import BreakerGuard, breaker_settings
from .guard import Heed
from .pace import Pace
from .plan import Plan

__all__ = ["GatewaySettings", "seconds_of", "size_of"]


def seconds_of(text: str) -> float:
    """`5s`, `500ms`, `2min`; 0 is without end."""
    return 0.0 if text in ("0", "off") else duration(text, "time") / 1_000_000


def size_of(text: str) -> int:
    """`64KiB`, `10MB`, or bytes; 0 is none."""
    return 0 if text == "0" else Limit.parse(f"{text}/second").amount


def _header(name: str) -> Finder:
    """What finds the value of a header in a scope; of several nobody is meant."""
    raw = name.lower().encode("latin-1", "replace")

    def find(scope: Scope) -> str:
        found = [value for each, value in scope["headers"] if each == raw]
        return found[0].decode("latin-1") if len(found) == 1 else ""

    return find


@dataclass(frozen=True, slots=True)
class GatewaySettings(Processes):
    """All that a gateway is told. Texts are read where it is made."""

    upstream: str
    limits: tuple[str, ...] = ()
    """For each `key`, in place of rules."""
    key: str = "ip"
    user: str = ""
    """The header that names the user, and the next one that with a key; "" if none does."""
    api_key: str = ""
    store: str = ""
    """A store's URL; this process's memory, or of several workers a shared zone."""
    name: str = "gateway"
    listen: str = "127.0.0.1:8000"
    host: str = ""
    forwarded_by: str = ""
    """The one header that trusted proxies write."""
    connect_timeout: str = "5s"
    first_byte_timeout: str = "60s"
    idle_timeout: str = "60s"
    total_timeout: str = "0"
    head_timeout: str = "10s"
    """In which the head of a request must have arrived."""
    upstream_keepalive: str = "4s"
    upstream_connections: int = 0
    upstream_ca: str = ""
    max_body: str = "0"
    max_connections: int = 4096
    health: str = ""
    download: str = ""
    upload: str = ""
    bandwidth_key: str = "ip"
    limit_rate: str = ""
    limit_rate_after: str = "0"
    heed: str = ""
    breaker: str = "off"
    """`on`, or when it opens and how it comes back: `failures=50%,open=10s`."""
    drain: str = "10s"

    def __post_init__(self) -> None:
        if self.limits and self.rules:
            raise SettingsError("give limits, or --rules; a file says all of it")
        self.check_processes()
        if self.workers > 1 and self.store.startswith("memory:"):
            raise SettingsError(
                "several workers do not share memory://; name a zone:///path, or a Redis"
            )
        if Listen.parse(self.listen, "listen") is None:
            raise SettingsError("a gateway listens somewhere: --listen 127.0.0.1:8000")
        try:
            self.plan()
            for text in self.limits:
                Limit.parse(text)
            breaker_settings(self.breaker)
            for word in ("head_timeout", "drain"):
                seconds_of(getattr(self, word))
        except HeadgateError:
            raise
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def plan(self) -> Plan:
        """Where calls go."""
        trusted = Trusted(*self.trusted, header=self.forwarded_by) if self.trusted else None
        tls = None
        if self.upstream_ca:
            try:
                tls = ssl.create_default_context(cafile=self.upstream_ca)
            except OSError as error:
                raise SettingsError(f"{self.upstream_ca} cannot be used: {error}") from None
        return Plan(
            self.upstream, host=self.host, trusted=trusted,
            connect=seconds_of(self.connect_timeout),
            first_byte=seconds_of(self.first_byte_timeout), between=seconds_of(self.idle_timeout),
            total=seconds_of(self.total_timeout), keepalive=seconds_of(self.upstream_keepalive),
            connections=self.upstream_connections, max_body=size_of(self.max_body), tls=tls,
            health=self.health,
        )  # fmt: skip

    @property
    def store_url(self) -> str | None:
        """The store that all workers share."""
        if self.store or self.workers == 1:
            return self.store or None
        return f"zone://{runtime_folder()}/{self.name}.zone?size=64MiB"

    def source(self) -> Source | None:
        """What follows the rules."""
        return source_of(self.rules) if self.rules else None

    def gateway(self, source: Source | None = None) -> Gateway:
        """The gateway itself."""
        store = self.store_url
        words: dict[str, Any] = {}
        if self.limits or self.rules:
            words = {"store": store, "name": self.name}
            words |= {"rules": source or self.source()} if self.rules else {"key": self.key}
            for word in ("user", "api_key"):
                if getattr(self, word):
                    words[word] = _header(getattr(self, word))
        down = up = heed = None
        key, name = self.bandwidth_key, f"{self.name}-bandwidth"
        try:
            if self.download or self.limit_rate:
                down = Pace(
                    self.download or None, key=key, single=self.limit_rate or None,
                    after=size_of(self.limit_rate_after), store=store, name=f"{name}-down",
                )  # fmt: skip
            if self.upload:
                up = Pace(self.upload, key=key, store=store, name=f"{name}-up")
            if self.heed:
                heed = Heed(self.heed)
            plan = self.plan()
            return Gateway(
                plan, *self.limits, guard=BreakerGuard.of(self.breaker, plan), heed=heed,
                download=down, upload=up, **words,
            )  # fmt: skip
        except HeadgateError:
            raise
        except ValueError as error:
            raise SettingsError(str(error)) from None
