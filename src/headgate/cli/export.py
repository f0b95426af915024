"""`headgate export`: rules written down for somebody else to enforce."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..errors import HeadgateError
from .shown import as_json, complain

__all__ = ["register"]


def register(commands: Any) -> None:
    """Add the command and what it can do."""
    parser = commands.add_parser("export", help="rules for others to enforce", description=__doc__)
    kinds = parser.add_subparsers(metavar="FOR", required=True)
    nginx = kinds.add_parser(
        "nginx",
        help="limit_req and limit_conn",
        description="Writes limit_req and limit_conn for the rules that nginx can enforce alone, "
        "and says which it cannot and why: as comments, and on the standard error.",
    )
    nginx.add_argument("path", metavar="RULES", help="a rules file")
    nginx.add_argument("-o", "--output", metavar="FILE", help="where to (the standard output)")
    nginx.add_argument("--zone-size", default="10m", help="of each zone (10m)")
    nginx.add_argument("--prefix", default="headgate", help="of variables and zones (headgate)")
    nginx.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="FACT=$VARIABLE",
        help="a variable that tells the user, device, api_key or origin",
    )
    nginx.add_argument("--strict", action="store_true", help="status 1 if something is left out")
    nginx.add_argument("--json", action="store_true", help="print JSON")
    nginx.set_defaults(run=_nginx)


def _nginx(options: argparse.Namespace) -> int:
    from ..export import nginx_config
    from ..rules import load_rules

    try:
        known = dict(each.split("=", 1) if "=" in each else (each, "") for each in options.known)
        found = nginx_config(
            load_rules(options.path),
            zone_size=options.zone_size,
            prefix=options.prefix,
            known=known,
        )
        if options.output:
            Path(options.output).write_text(found.text, encoding="utf-8")
    except (HeadgateError, ValueError, OSError) as error:
        for one in (error, *getattr(error, "more", ())):
            complain(str(one))
        return 2
    if options.json:
        as_json(
            {
                "rules": found.rules,
                "differs": [{"rule": name, "how": how} for name, how in found.differs],
                "left_out": [{"rule": name, "why": why} for name, why in found.left_out],
                "text": found.text,
            }
        )
    elif not options.output:
        sys.stdout.write(found.text)
    for name, how in found.differs:
        complain(f"not the same: rule {name}: {how}")
    for name, why in found.left_out:
        complain(f"left out: rule {name}: {why}")
    return 1 if options.strict and found.left_out else 0
