"""`headgate serve`: the service, for callers in any language and for gateways."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..errors import HeadgateError

__all__ = ["register"]

FLAGS: tuple[tuple[str, str, str], ...] = (
    ("--store", "URL", "zone:///path?size=64MiB, redis://..., memory:// (a zone of this user)"),
    ("--name", "NAME", "the namespace of the limits (rules)"),
    ("--listen", "WHERE", "HTTP: host:port or unix:path (127.0.0.1:8080)"),
    ("--grpc", "WHERE", "Envoy's gRPC: host:port, or off (127.0.0.1:8081)"),
    ("--admin", "WHERE", "metrics and administration: host:port, or off (127.0.0.1:8082)"),
    ("--workers", "N", "processes that serve HTTP (1)"),
    ("--token-file", "FILE", "the token that the admin listener wants"),
    ("--api-token-file", "FILE", "the token that the API wants, of gateways too"),
    ("--tls-cert", "FILE", "a certificate, for TLS"),
    ("--tls-key", "FILE", "and its key"),
    ("--max-body", "SIZE", "the largest body (64KiB)"),
    ("--timeout", "TIME", "for a request to arrive as a whole (5s)"),
    ("--drain", "TIME", "for requests under way when the service ends (10s)"),
    ("--connections", "N", "per worker, at most (4096)"),
    ("--lease", "TIME", "after which permits come back that are not renewed (30s)"),
    ("--deny-status", "STATUS", "of a refusal by the API: 200 or 429 (200)"),
    ("--log", "FORM", "json or text (text)"),
    ("--log-level", "LEVEL", "debug, info, warning or error (info)"),
    ("--keys", "HOW", "keys in logs and streams: plain, masked, hashed, hidden (plain)"),
)


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "serve", help="run the service", description=__doc__,
        epilog="Each option may also be set in the environment (HEADGATE_STORE), or in a file.",
    )  # fmt: skip
    parser.add_argument(
        "--rules", action="append", metavar="FILE",
        help="the rules: headgate's format or Envoy's (then several, one for each domain)",
    )  # fmt: skip
    parser.add_argument("--config", metavar="FILE", help="settings as TOML or JSON")
    parser.add_argument(
        "--trusted", action="append", metavar="NETWORK", help="proxies that are believed"
    )
    for flag, metavar, about in FLAGS:
        parser.add_argument(flag, metavar=metavar, help=about)
    parser.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    try:
        from ..service.logs import set_up
        from ..service.running import run
        from ..service.settings import Settings
    except ImportError as error:
        print(f"headgate serve: {error}; pip install 'headgate[service]'", file=sys.stderr)
        return 2
    flags = vars(options).copy()
    file = flags.pop("config")
    del flags["run"]
    try:
        settings = Settings.read(flags, file=file)
        set_up(settings.log, settings.log_level)
        run(settings, lambda where: _say(where, settings))
    except HeadgateError as error:
        for one in (error, *getattr(error, "more", ())):
            print(f"headgate serve: {one}", file=sys.stderr)
        return 2
    return 0


def _say(where: dict[str, str], settings: Any) -> None:
    """Where it listens, and what to try."""
    scheme = "https" if settings.tls_cert else "http"
    print(f"headgate serves {', '.join(settings.rules)}", flush=True)
    for name, place in where.items():
        shown = place if place.startswith("unix:") or name == "grpc" else f"{scheme}://{place}"
        print(f"  {name:<6} {shown}", flush=True)
    base = f"{scheme}://{where['http']}"
    if where["http"].startswith("unix:"):
        base = f"--unix-socket {where['http'][5:]} {scheme}://localhost"
    kind = "-H 'content-type: application/json'"
    print("\nTry:")
    call = '{"method": "GET", "path": "/api/orders", "user": "ann", "ip": "192.0.2.7"}'
    print(f"  curl -i {kind} -d '{call}' {base}/v1/check")
    print(f"  curl {base}/v1/rules")
    if "admin" in where and not where["admin"].startswith("unix:"):
        print(f"  curl {scheme}://{where['admin']}/metrics")
    else:
        print(f"  curl {base}/readyz")
    print(flush=True)
