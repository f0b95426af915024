"""The command line: one file per command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from . import check, export, gateway, loadcheck, rules, serve, zone

__all__ = ["main"]

NOBODY_READS = 128 + 13
"""The exit status of a program that SIGPIPE ends."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status says how it went."""
    parser = argparse.ArgumentParser(prog="headgate", description="Flow control for services.")
    parser.add_argument("--version", action="version", version=f"headgate {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    check.register(commands)
    export.register(commands)
    gateway.register(commands)
    loadcheck.register(commands)
    rules.register(commands)
    serve.register(commands)
    zone.register(commands)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # `headgate ... | head`
        # Python flushes once more at its end, and would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    return status
