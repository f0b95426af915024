"""The README's chart, drawn from results.json: `python -m benchmarks.chart [where.svg]`."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

_HERE = Path(__file__).parent
_OURS = ("headgate", "headgate-pure")
_PANELS = {
    "hot-allowed": "one hot key, allowed",
    "hot-refused": "one hot key, refused",
    "many-keys": "100,000 keys, random order",
}
_INK, _FAINT, _GRID = "#1f2933", "#6b7785", "#e4e8ec"
_COMPILED, _PURE, _RIVAL, _INEXACT = "#0b7285", "#66b3c1", "#a9b4c0", "#edf0f3"


@dataclass(frozen=True)
class Bar:
    """One line of the chart: a library under an algorithm, at a height."""

    algorithm: str
    library: str
    height: float


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Every library under each algorithm that headgate and a rival share, ours on top."""
    shown = [row for row in rows if row["scenario"] in _PANELS and "per_second" in row]
    libraries: dict[str, list[str]] = {}
    for row in shown:
        names = libraries.setdefault(row["algorithm"], [])
        if row["rival"] not in names:
            names.append(row["rival"])
    lines, height = [], 0.0
    for algorithm, names in libraries.items():
        if any(name not in _OURS for name in names):
            height += 1.0  # room for the algorithm's name
            for name in sorted(names, key=lambda name: name not in _OURS):
                lines.append(Bar(algorithm, name, height))
                height += 1.0
    return lines


def inexact(rows: Sequence[dict[str, Any]]) -> set[tuple[str, str]]:
    """The (algorithm, library) pairs that admitted a wrong count under threads."""
    return {(row["algorithm"], row["rival"]) for row in rows if row.get("error_percent")}


def short(number: float) -> str:
    """A rate as one reads it: 940k, 1.84M."""
    return f"{number / 1e6:.3g}M" if number >= 999_500 else f"{number / 1e3:.0f}k"


def _colour(library: str) -> str:
    return _COMPILED if library == _OURS[0] else _PURE


def panel(
    axes: Axes, lines: Sequence[Bar], rows: Sequence[dict[str, Any]], wrong: set[tuple[str, str]]
) -> None:
    """Draw one scenario: a bar and its number for each library, or why there is none."""
    pairs = {(row["algorithm"], row["rival"]): row for row in rows}
    speeds = {pair: row["per_second"] for pair, row in pairs.items() if "per_second" in row}
    excuses = {pair: row.get("problem", "") for pair, row in pairs.items()}
    limit = max(speeds.values(), default=1.0) * 1.22
    for bar in lines:
        pair = (bar.algorithm, bar.library)
        ours = bar.library in _OURS
        if pair not in speeds:
            excuse = excuses.get(pair, "")
            axes.text(limit * 0.015, bar.height, excuse, va="center", color=_FAINT, fontsize=8.5)
            continue
        axes.barh(
            bar.height,
            speeds[pair],
            height=0.78,
            color=_colour(bar.library) if ours else _INEXACT if pair in wrong else _RIVAL,
            hatch="////" if pair in wrong else None,
            edgecolor=_RIVAL,
            linewidth=0,
        )
        axes.text(
            speeds[pair] + limit * 0.015,
            bar.height,
            short(speeds[pair]),
            va="center",
            fontsize=8.5,
            color=_COMPILED if ours else _FAINT,
            fontweight="bold" if ours else "normal",
        )
    axes.set_xlim(0, limit)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(lambda value, _: short(value) if value else "0")
    axes.tick_params(axis="x", colors=_FAINT, labelsize=8.5, length=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


def draw(record: dict[str, Any], where: Path) -> None:
    """Draw the chart of one record; the file's suffix chooses its format."""
    rows = record["rows"]
    lines, wrong = bars(rows), inexact(rows)
    if not lines:
        raise SystemExit("nothing to draw: no algorithm was measured for two libraries")
    figure = Figure(figsize=(11, 1.9 + 0.24 * (lines[-1].height + 1)))
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    for axes, (scenario, title) in zip(panels, _PANELS.items(), strict=True):
        panel(axes, lines, [row for row in rows if row["scenario"] == scenario], wrong)
        axes.set_title(title, loc="left", fontsize=10.5, color=_INK, pad=8)

    first = panels[0]
    first.set_ylim(lines[-1].height + 0.6, -0.5)
    first.set_yticks([bar.height for bar in lines], [bar.library for bar in lines])
    for label in first.get_yticklabels():
        ours = label.get_text() in _OURS
        weight = "bold" if ours else None
        label.set(color=_COMPILED if ours else _INK, fontsize=9, fontweight=weight)
    for algorithm in dict.fromkeys(bar.algorithm for bar in lines):
        top = next(bar.height for bar in lines if bar.algorithm == algorithm) - 0.92
        first.annotate(
            algorithm,
            (0, top),
            xycoords=("axes fraction", "data"),
            xytext=(-87, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            fontweight="bold",
            color=_INK,
        )
    caption(figure, record)
    # The same record gives the same file, so that a commit shows only what changed.
    with rc_context({"hatch.linewidth": 1.2, "svg.hashsalt": "headgate"}):
        figure.savefig(where, dpi=160, metadata={"Date": None} if where.suffix == ".svg" else None)


def caption(figure: Figure, record: dict[str, Any]) -> None:
    """Put the title above, and below it what the colours mean and where this ran."""
    high = figure.get_figheight()
    figure.subplots_adjust(
        left=0.125, right=0.985, top=1 - 0.95 / high, bottom=0.72 / high, wspace=0.07
    )
    figure.text(
        0.015,
        1 - 0.22 / high,
        "Decisions per second in memory",
        fontsize=14,
        fontweight="bold",
        color=_INK,
        va="top",
    )
    figure.legend(
        handles=[
            Patch(color=_COMPILED, label="headgate, compiled"),
            Patch(color=_PURE, label="headgate, pure Python"),
            Patch(color=_RIVAL, label="other libraries"),
            Patch(
                facecolor=_INEXACT,
                hatch="////",
                edgecolor=_RIVAL,
                linewidth=0,
                label="wrong count under 4 threads",
            ),
        ],
        loc="upper right",
        bbox_to_anchor=(0.99, 1 - 0.14 / high),
        ncols=4,
        columnspacing=1.3,
        handlelength=1.4,
        frameon=False,
        fontsize=8.5,
        labelcolor=_INK,
    )
    machine = record["machine"]
    figure.text(
        0.015,
        0.14 / high,
        f"{machine['implementation']} {machine['python']}, one thread, higher is better; "
        "one process for each bar, the best of several rounds taken in turn.",
        fontsize=8.5,
        color=_FAINT,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw where the command line says, else where the README looks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chart", description=__doc__)
    default = _HERE.parent / "docs" / "img" / "benchmarks.svg"
    parser.add_argument("where", type=Path, nargs="?", default=default)
    parser.add_argument("--results", type=Path, default=_HERE / "results.json")
    options = parser.parse_args(arguments)
    options.where.parent.mkdir(parents=True, exist_ok=True)
    draw(json.loads(options.results.read_text()), options.where)


if __name__ == "__main__":
    main()
