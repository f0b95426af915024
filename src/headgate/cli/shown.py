"""What commands show: plain lines, and with colour on a terminal if `rich` is installed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["as_json", "complain", "say", "table"]


def say(text: str = "", style: str = "") -> None:
    """Print a line, whatever characters are in it; `style` is a word of rich, such as `green`."""
    console = _console() if style else None
    if console is None:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding))
    else:
        console.print(_printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def complain(text: str) -> None:
    """The same to whoever reads errors."""
    encoding = sys.stderr.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr)


def as_json(thing: Any) -> None:
    """Print a value for programs; what never comes to an end is null."""
    print(json.dumps(_finite(thing), indent=2))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Print rows under heads; `styles` has a style for each row."""
    console = _console()
    if console is not None:
        _rich_table(console, heads, rows, styles)
        return
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    for row in (heads, *rows):
        say("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip())


def _rich_table(
    console: Any, heads: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str]
) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    for head in heads:
        made.add_column(head, overflow="fold")
    for place, row in enumerate(rows):
        style = styles[place] if styles else ""
        made.add_row(*(Text(_printable(text)) for text in row), style=style)
    console.print(made)


def _console() -> Any:
    """What prints in colour; None unless somebody looks and rich is there."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console()


def _printable(text: str) -> str:
    """A text that cannot move the cursor of a terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _finite(thing: Any) -> Any:
    if isinstance(thing, float) and thing in (float("inf"), float("-inf")):
        return None
    if isinstance(thing, dict):
        return {name: _finite(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_finite(value) for value in thing]
    if isinstance(thing, bytes):
        return thing.decode("utf-8", "backslashreplace")
    return thing
