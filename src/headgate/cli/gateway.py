"""`headgate gateway`: limits and passes calls on, for those who have no gateway."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any

from ..errors import HeadgateError

__all__ = ["register"]

# The option's name, what stands for its value, and what it is for. Defaults are the settings'.
OPTIONS = {
    "limits and where they are kept": (
        ("rules", "FILE", "a rules file, in place of limits"),
        ("key", "KEY", "what limits are counted by (ip): header:X-Tenant, host, path, ..."),
        ("user", "HEADER", "the header that names the user, for rules by user"),
        ("api-key", "HEADER", "the header that has the API key, for rules by api_key"),
        ("store", "URL", "zone:///path?size=64MiB, redis://... (this process's memory)"),
        ("name", "NAME", "the namespace of the limits (gateway)"),
        ("heed", "KEY", "keep to the upstream's own Retry-After, for all or by ip, header:X, ..."),
    ),
    "bytes per second": (
        ("download", "LIMIT", "of all responses of a key together: 10MiB/second"),
        ("upload", "LIMIT", "of all requests of a key together"),
        ("bandwidth-key", "KEY", "the key of both (ip)"),
        ("limit-rate", "LIMIT", "of each response alone"),
        ("limit-rate-after", "SIZE", "so much of each response is not held up"),
    ),
    "where calls come from": (
        ("listen", "ADDRESS", "127.0.0.1:8000, [::1]:8000, :8000 or unix:/path (127.0.0.1:8000)"),
        ("trusted", "NETWORK", "a proxy in front, whose X-Forwarded-For is believed; repeatable"),
        ("forwarded-by", "HEADER", "the one header that these proxies write"),
        ("max-body", "SIZE", "of a request (0: any)"),
        ("max-connections", "N", "at once (4096)"),
        ("head-timeout", "TIME", "for the head of a request to arrive (10s)"),
        ("health", "PATH", "a path that is answered here: 200, uncounted"),
        ("tls-cert", "FILE", "speak TLS with clients"),
        ("tls-key", "FILE", "its key"),
    ),
    "where calls go": (
        ("breaker", "off|on|WORDS", "leave a sick one alone: failures=50%,slow=2s,open=10s (off)"),
        ("host", "keep|upstream", "which Host the upstream is told (keep; for https upstream)"),
        ("connect-timeout", "TIME", "for a connection (5s)"),
        ("first-byte-timeout", "TIME", "for the beginning of a response (60s)"),
        ("idle-timeout", "TIME", "between two bytes in either direction (60s)"),
        ("total-timeout", "TIME", "for the whole call (0: without end)"),
        ("upstream-keepalive", "TIME", "for idle connections; less than the upstream's own (4s)"),
        ("upstream-connections", "N", "at most (0: as many as needed)"),
        ("upstream-ca", "FILE", "certificates that an https upstream is checked by"),
    ),
    "how it runs": (
        ("workers", "N", "processes; they count together in a zone unless a store is said (1)"),
        ("drain", "TIME", "for calls under way when it is to stop (10s)"),
        ("log", "text|json", "(text)"),
        ("log-level", "LEVEL", "debug, info, warning, error (info)"),
    ),
}
REPEATED = ("rules", "trusted")
NUMBERS = ("workers", "max_connections", "upstream_connections")


def register(commands: Any) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "gateway", help="limit calls, and pass them on to an upstream", description=__doc__
    )
    parser.add_argument("limits", nargs="*", metavar="LIMIT", help="100/minute, '20 concurrent'")
    parser.add_argument("--upstream", metavar="URL", help="http://host:port, https://..., unix:...")
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, value, text in options:
            action = "append" if name in REPEATED else "store"
            text = text.replace("%", "%%")  # argparse fills in its own
            group.add_argument(f"--{name}", metavar=value, help=text, action=action)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        import aiohttp  # noqa: F401 # whether they are there
        import uvicorn  # noqa: F401
    except ImportError as error:
        _say(f"{error.name} is missing: pip install 'headgate[gateway]'")
        return 2
    from ..gateway.serving import run
    from ..gateway.workers import run_workers
    from ..service.logs import set_up
    from ..service.servers import bound
    from ..service.settings import Listen

    try:
        settings = _settings(options)
        set_up(settings.log, settings.log_level)
        listen = Listen.parse(settings.listen, "listen")
        assert listen is not None  # checked with the settings
        with bound(listen) as listener:
            if not listen.path:  # the port may have been 0
                listen = Listen(listen.host, listener.getsockname()[1])
            try:
                serve = run if settings.workers == 1 else run_workers
                serve(settings, listener, lambda: _hello(settings, listen))
            finally:
                if listen.path:
                    with contextlib.suppress(OSError):
                        os.unlink(listen.path)
    except HeadgateError as error:
        for one in (error, *getattr(error, "more", ())):
            _say(f"headgate gateway: {one}")
        return 2
    return 0


def _settings(options: argparse.Namespace) -> Any:
    """Flags before the environment: HEADGATE_UPSTREAM and so on."""
    from ..gateway.settings import GatewaySettings
    from ..service.settings import SettingsError

    said: dict[str, Any] = {"limits": tuple(options.limits)}
    names = ["upstream", *(name for group in OPTIONS.values() for name, _, _ in group)]
    for name in (each.replace("-", "_") for each in names):
        value = getattr(options, name)
        if value is None:
            value = os.environ.get(f"HEADGATE_{name.upper()}")
            if value is None or (name == "rules" and options.limits):
                continue
            if name in REPEATED:
                value = [part for part in value.split(",") if part]
        if name in NUMBERS and not (value.isascii() and value.isdigit()):
            raise SettingsError(f"{name} is a number, not {value!r}")
        said[name] = int(value) if name in NUMBERS else tuple(value) if name in REPEATED else value
    if "upstream" not in said:
        raise SettingsError("the upstream is missing: --upstream http://127.0.0.1:9000")
    return GatewaySettings(**said)


def _hello(settings: Any, where: Any) -> None:
    scheme = "https" if settings.tls_cert else "http"
    url = f"unix:{where.path}" if where.path else f"{scheme}://{where}"
    limits = ", ".join(settings.limits or settings.rules) or "none"
    print(f"headgate gateway at {url}, upstream {settings.upstream}, limits: {limits}", flush=True)
    if not where.path:
        print(f"  try: curl -i {url}/", flush=True)


def _say(text: str) -> None:
    print(text.encode("ascii", "backslashreplace").decode(), file=sys.stderr)
