"""Settings: how a service is run, from flags, the environment (HEADGATE_*) and a file."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..errors import HeadgateError

__all__ = ["Listen", "Processes", "Settings", "SettingsError", "runtime_folder"]

SIZES = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20}
TIMES = {"": 1.0, "S": 1.0, "MS": 0.001, "MIN": 60.0, "H": 3600.0}


class SettingsError(HeadgateError, ValueError):
    """A setting that cannot be; it says what to do."""


class Listen(NamedTuple):
    """Where to listen: a host and a port, or the path of a Unix socket."""

    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, text: str, what: str) -> Listen | None:
        """`127.0.0.1:8080`, `[::1]:8080`, `:8080` (everywhere), `unix:/run/x.sock`, or `off`."""
        if text == "off":
            return None
        if text.startswith("unix:"):
            if not text[5:]:
                raise SettingsError(f"{what}: a Unix socket has a path, as in unix:/run/x.sock")
            return cls("", 0, text[5:])
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise SettingsError(
                f"{what} is written as 127.0.0.1:8080, [::1]:8080 or unix:/run/x.sock, not {text!r}"
            )
        return cls(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """What the service and the gateway are both told, by people and by a process to its workers."""

    rules: tuple[str, ...] = ()
    """Files in headgate's format or in Envoy's (of which there may be several), or a Redis URL."""
    trusted: tuple[str, ...] = ()
    """Proxies whose word about a caller's address is believed."""
    workers: int = 1
    tls_cert: str = ""
    tls_key: str = ""
    log: str = "text"
    log_level: str = "info"

    def check_processes(self) -> None:
        """Refuse what no process could be run by."""
        if not 1 <= self.workers <= 256:
            raise SettingsError(f"workers is a number from 1 to 256, not {self.workers}")
        if self.log not in ("json", "text"):
            raise SettingsError(f"log is json or text, not {self.log!r}")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise SettingsError(
                f"log_level is debug, info, warning or error, not {self.log_level!r}"
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise SettingsError("TLS needs both: --tls-cert and --tls-key")

    def as_json(self) -> str:
        """The same for another process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `as_json` wrote."""
        told = json.loads(text)
        return cls(**{name: _tuple(value) for name, value in told.items()})


@dataclass(frozen=True, slots=True)
class Settings(Processes):
    """How the service is run. Everything has a default but the rules."""

    store: str = ""
    """A store's URL; a shared zone of this machine if there is none."""
    name: str = "rules"
    """The namespace of the limits."""
    listen: str = "127.0.0.1:8080"
    grpc: str = "127.0.0.1:8081"
    admin: str = "127.0.0.1:8082"
    token_file: str = ""
    """A file with the token that the admin listener wants."""
    api_token_file: str = ""
    """A file with the token that the API wants, of gateways too; none if it is not given."""
    max_body: int = 64 << 10
    timeout: float = 5.0
    """Seconds in which a request must have arrived as a whole."""
    drain: float = 10.0
    """Seconds that requests under way have to end when the service is to stop."""
    connections: int = 4096
    """So many connections a worker has at most."""
    lease: float = 30.0
    """Seconds after which a permit comes back that is not renewed."""
    keys: str = "plain"
    """How keys are shown in metrics' streams and logs: plain, masked, hashed or hidden."""
    deny_status: int = 200
    """The status of a refusal by the API, unless the caller says otherwise: 200 or 429."""
    counts: str = ""
    """The file in which all workers count; the master makes one."""

    def __post_init__(self) -> None:
        for what in ("listen", "grpc", "admin"):
            Listen.parse(getattr(self, what), what)
        self.check_processes()
        for what in ("max_body", "timeout", "connections", "lease"):
            if not getattr(self, what) > 0:
                raise SettingsError(f"{what} is more than 0, not {getattr(self, what)}")
        if self.drain < 0:
            raise SettingsError(f"drain is 0 or more seconds, not {self.drain}")
        if self.deny_status not in (200, 429):
            raise SettingsError(f"deny_status is 200 or 429, not {self.deny_status}")
        admin = Listen.parse(self.admin, "admin")
        if admin is not None and not admin.is_local and not self.token_file:
            raise SettingsError(
                f"the admin listener at {admin} could be reached from other machines, and so needs "
                "a token: write one into a file (for example by `openssl rand -hex 32`) and name "
                "it with --token-file, or listen on 127.0.0.1"
            )

    # -- where they come from

    @classmethod
    def read(
        cls,
        flags: Mapping[str, Any],
        environment: Mapping[str, str] = os.environ,
        file: str | None = None,
    ) -> Settings:
        """Flags before the environment before the file; what nobody says has its default."""
        said: dict[str, Any] = {}
        file = file or environment.get("HEADGATE_CONFIG")
        if file:
            said.update(_from_file(file))
        for field in dataclasses.fields(cls):
            value = environment.get(f"HEADGATE_{field.name.upper()}")
            if value is not None and field.name != "counts":
                said[field.name] = value
        said.update((name, value) for name, value in flags.items() if value not in (None, [], ()))
        known = {field.name: field for field in dataclasses.fields(cls)}
        made: dict[str, Any] = {}
        for name, value in said.items():
            if name not in known:
                raise SettingsError(f"there is no setting {name!r}; known are {', '.join(known)}")
            made[name] = _as(known[name].type, value, name)
        return cls(**made)

    # -- what follows from them

    @property
    def store_url(self) -> str:
        """The store; a zone in the runtime folder if none was said."""
        return self.store or f"zone://{runtime_folder()}/headgate.zone?size=64MiB"

    def token(self) -> bytes:
        """The token of the admin listener; empty if there is none."""
        return _token(self.token_file)

    def api_token(self) -> bytes:
        """The token of the API; empty if there is none."""
        return _token(self.api_token_file)


def runtime_folder() -> str:
    """Where a service of this user keeps what lives as long as the machine runs."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and os.access(given, os.W_OK):
        return given
    folder = Path(tempfile.gettempdir(), f"headgate-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    held = folder.lstat()
    if held.st_uid != os.getuid() or held.st_mode & 0o077 or folder.is_symlink():
        raise SettingsError(f"{folder} is not this user's alone; name a store with --store")
    return str(folder)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _token(path: str) -> bytes:
    if not path:
        return b""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"the token cannot be read: {error}") from None
    if len(token) < 16 or not token.isascii() or b" " in token:
        raise SettingsError(f"the token in {path} is one word of 16 characters or more")
    return token


def _from_file(path: str) -> dict[str, Any]:
    """A file of settings: TOML, or JSON."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        if path.endswith(".json"):
            found = json.loads(text)
        else:
            import tomllib

            found = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{path} holds settings by name")
    return {name.replace("-", "_"): value for name, value in found.items()}


def _size(text: str) -> float:
    return _unit(text, SIZES, "64KiB")


def _seconds(text: str) -> float:
    return _unit(text, TIMES, "5s")


def _unit(text: str, units: Mapping[str, float], example: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip(), re.ASCII)
    if found is None or found[2].upper() not in units:
        raise ValueError(f"it is written as {example}")
    return float(found[1]) * units[found[2].upper()]


READERS: dict[str, Callable[[str], Any]] = {
    "max_body": lambda text: int(_size(text)), "timeout": _seconds, "drain": _seconds,
    "lease": _seconds,
}  # fmt: skip


def _as(kind: Any, value: Any, name: str) -> Any:
    """A value as its field has it; texts are read."""
    try:
        if kind == "tuple[str, ...]":
            if isinstance(value, str):
                return tuple(part for part in value.split(",") if part)
            return tuple(str(part) for part in value)
        if kind == "str":
            if not isinstance(value, str):
                raise ValueError("it is a text")
            return value
        if isinstance(value, str):
            return READERS.get(name, int)(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("it is a number")
        return float(value) if kind == "float" else int(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{name} cannot be {value!r}: {error}") from None
