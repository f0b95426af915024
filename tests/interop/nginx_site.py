"""A site behind nginx that asks headgate: the shipped configuration with ports of its own."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
from asgi_tools import Served, clock
from nginx_tools import HEAD, TEMPORARY, Nginx, Upstream, free_port

from headgate import ManualClock
from headgate.gate import AsyncGate
from headgate.service.app import Service
from headgate.service.forward import Forward

__all__ = ["Site"]

SHIPPED = Path(__file__).parents[2] / "examples" / "nginx"


class Site:
    """nginx with the shipped configuration, an upstream, and headgate, here or at another port."""

    def __init__(self, folder: Path, rules: str, headgate: int = 0, patience: str = "30s") -> None:
        self.clock: ManualClock = clock()
        self.headgate, self.upstream, self.port = Served(), Upstream(), free_port()
        self._rules = rules
        self.renew()
        config = (SHIPPED / "nginx.conf").read_text()
        for old, new in (("8080", headgate or self.headgate.port), ("9000", self.upstream.port)):
            config = config.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        config = config.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        config = config.replace("worker_processes auto;\nevents {}\n", HEAD)
        config = config.replace("http {\n", f"http {{\naccess_log off;\n{TEMPORARY}", 1)
        more = (SHIPPED / "headgate.conf").read_text()
        for old in ("100ms", "250ms"):  # a busy machine must not look like a limiter that is down
            assert old in more
            more = more.replace(old, patience)
        self.nginx = Nginx(folder, config, **{"headgate.conf": more})
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def renew(self) -> None:
        """Forget all counts."""
        self.gate = AsyncGate(self._rules, clock=self.clock)
        service = Service(self.gate)
        service.routes.update(Forward(self.gate).routes)
        self.headgate.app = service
        self.upstream.seen.clear()

    def close(self) -> None:
        self.client.close()
        self.headgate.close()
        self.upstream.close()

    def sent(self, text: str) -> bytes:
        """The answer to a request written by hand."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as connection:
            connection.sendall(text.replace("\n", "\r\n").encode("latin-1"))
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        return answer
