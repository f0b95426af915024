"""The house: who may import whom, what importing costs, how large a file is, and the plan."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headgate

SOURCE = Path(headgate.__file__).parent
VALUES = {
    "addresses",
    "calendar",
    "clock",
    "decision",
    "errors",
    "facts",
    "forwarded",
    "headers",
    "keys",
    "language",
    "limit",
    "options",
    "paths",
    "problems",
    "record",
}
FRONT = {
    "answers", "callers", "door", "flows", "front", "heart", "held", "limited", "limiter",
    "patience", "queues", "ranks", "taken", "turns", "waiters", "waiting",
}  # fmt: skip
# A room, and the rooms it may import from; values may import each other.
MAY_IMPORT = {
    **dict.fromkeys(VALUES, VALUES),
    "algorithms": VALUES | {"algorithms"},
    "stores": VALUES | {"algorithms", "stores", "_native"},
    "workers": VALUES,
    "resilience": VALUES | {"resilience"},
    **dict.fromkeys(FRONT, VALUES | FRONT | {"stores", "workers"}),
    "rules": VALUES,
    "export": VALUES | {"rules"},
    "verdict": VALUES | {"gating", "headers", "rules"},
    **dict.fromkeys(
        ("gate", "gating"),
        VALUES | FRONT | {"gating", "resilience", "rules", "stores", "verdict", "workers"},
    ),
    "integrations": VALUES | FRONT | {"gate", "gating", "integrations", "rules", "verdict"},
    "compat": VALUES | FRONT | {"gate", "gating", "integrations", "rules", "stores", "verdict"},
    "client": VALUES | {"client", "stores", "verdict"},
    "telemetry": VALUES | {"telemetry", "verdict"},
    "service": VALUES
    | FRONT
    | {"dashboard", "gate", "gating", "rules", "service", "stores", "telemetry", "verdict"},
    "gateway": VALUES
    | FRONT
    | {"gate", "gating", "integrations", "resilience", "rules", "service", "telemetry", "verdict"},
    "_form": set(),
    "_native": set(),
    "testing": None,
    "cli": None,
    "__init__": None,
    "__main__": None,
}


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """The rooms of ours that a file imports from."""
    package = ["headgate", *path.relative_to(SOURCE).parts[:-1]]
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            rooms |= {[*base, *name.split(".")][1] for name in names}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            rooms |= {name.split(".")[1] for name in names if name.startswith("headgate.")}
    return rooms


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_rooms(path: Path) -> None:
    allowed = MAY_IMPORT[room_of(path)]
    if allowed is not None:
        assert imports_of(path) - {room_of(path), "__version__"} <= allowed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("room", sorted({room_of(path) for path in FILES if path.name[0] != "_"}))
def test_every_room_is_on_the_plan(room: str) -> None:
    plan = Path(__file__).parents[2] / "docs" / "architecture.md"
    name = f"{room}/" if (SOURCE / room).is_dir() else f"{room}.py"
    table = plan.read_text(encoding="utf-8").partition("## Rooms")[2].partition("###")[0]
    assert re.search(rf"(^\| |[ ,`/]){re.escape(name)}[` ,]", table, re.MULTILINE), name


def test_importing_costs_little() -> None:
    probe = (
        f"import sys, threading; sys.path.insert(0, {str(SOURCE.parent)!r}); "
        "before = set(sys.modules); import headgate; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - {'headgate'}; "
        "new = {name for name in new if 'cython' not in name}; "  # made by compiled code itself
        "assert threading.active_count() == 1; "
        "print(*sorted(new - set(sys.stdlib_module_names)));"
        "print(*sorted({'asyncio', 'zoneinfo', 'logging', 'dataclasses', 'decimal'} & new))"
    )
    out = subprocess.run([sys.executable, "-I", "-c", probe], check=True, capture_output=True)
    assert out.stdout.decode().split() == []


def test_everything_public_is_documented() -> None:
    for name in headgate.__all__:
        thing = getattr(headgate, name)
        if name not in ("__version__", "compiled"):
            assert thing.__doc__, name
            for method, value in vars(thing).items():
                if callable(value) and not method.startswith("_") and thing.__name__ != "Clock":
                    assert value.__doc__ or getattr(thing.__mro__[1], method, None), (name, method)


def test_the_wheel_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()
