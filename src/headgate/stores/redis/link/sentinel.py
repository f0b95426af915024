"""Routes through sentinels: they say which server is the master of a service."""

from __future__ import annotations

import contextlib
import importlib

from ....errors import StoreUnavailable
from .routes import Node, Routes
from .target import Place, Target

__all__ = ["SentinelRoutes"]


class SentinelRoutes(Routes):
    """The way to a service's master, asked for again after every failure."""

    def __init__(self, target: Target, timeout: float) -> None:
        super().__init__(target, timeout)
        self._master: Place | None = None

    def known(self, node: Node) -> bool:
        return self._master is not None

    def place(self, node: Node) -> Place | None:
        return self._master

    def refresh(self) -> None:
        self._master = None
        package, target = self.target.package, self.target
        module = importlib.import_module(f"{package}.sentinel")
        login = {**target.sentinel, "socket_timeout": self._timeout}
        login["socket_connect_timeout"] = self._timeout
        # The next sentinel is the retry: a client's own would take seconds for each.
        still = importlib.import_module(f"{package}.backoff").NoBackoff()
        login["retry"] = importlib.import_module(f"{package}.retry").Retry(still, 0)
        sentinels = module.Sentinel(list(target.places), sentinel_kwargs=login)
        try:
            host, port = sentinels.discover_master(target.service)
        except Exception as error:
            raise StoreUnavailable(f"{target.shown}: {error}", sent=False) from None
        finally:
            for client in sentinels.sentinels:
                with contextlib.suppress(Exception):
                    client.close()
        self._master = (str(host), int(port))
