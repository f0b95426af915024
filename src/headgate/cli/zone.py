"""`headgate zone`: what a shared zone holds, read from outside while others use it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..errors import StoreError

__all__ = ["register"]

LINES = (
    ("keys", "keys", "kept now"),
    ("fill_percent", "fill", "percent of its chunks in use"),
    ("free_chunks", "free chunks", "of 64 bytes each"),
    ("evicted", "evicted", "live keys forgotten because it was full"),
    ("denied", "denied", "new keys refused because it was full"),
    ("recoveries", "recoveries", "decisions undone because their process died"),
    ("limits", "limits", "known to it"),
    ("own_limits", "own limits", "of single keys"),
    ("reservations", "reservations", "open"),
)


def register(commands: Any) -> None:
    """Add the command and what it can do."""
    parser = commands.add_parser("zone", help="look into a shared zone", description=__doc__)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    stat = actions.add_parser("stat", help="keys, fill, evictions")
    stat.set_defaults(run=_stat)
    top = actions.add_parser("top", help="the busiest keys, if the zone keeps keys")
    top.add_argument("-n", "--number", type=int, default=20, help="how many (20)")
    top.set_defaults(run=_top)
    for action in (stat, top):
        action.add_argument("path", metavar="PATH", help="the zone's file")
        action.add_argument("--json", action="store_true", help="print JSON")


def _stat(options: argparse.Namespace) -> int:
    from ..stores.zone.looking import look_at

    try:
        found = look_at(options.path)
    except StoreError as error:
        _say(str(error))
        return 2
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    _say(f"{found['path']}: {found['size']:,} bytes, {found['form']}, version {found['version']}")
    for name, label, meaning in LINES:
        print(f"  {label:<13}{found[name]:>12,}  {meaning}")
    print(f"  keys are {'kept' if found['keeps_keys'] else 'not kept'} as text")
    if found["holder"]:
        print(f"  held by process {found['holder']} at this moment")
    return 0


def _top(options: argparse.Namespace) -> int:
    from ..stores.zone.looking import look_at_keys

    try:
        found = look_at_keys(options.path, options.number)
    except StoreError as error:
        _say(str(error))
        return 2
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"{'hits':>12} {'refusals':>12}  limit, key")
    for row in found:
        space = f"{row['space']}: " if row["space"] else ""
        _say(f"{row['hits']:>12,} {row['refusals']:>12,}  {space}{row['limit']}, {row['key']}")
    return 0


def _say(text: str) -> None:
    """Print a text whatever characters are in it: paths and keys are made of any."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))
