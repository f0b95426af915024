"""The breaker's page: its diagram and table are those of the code, its settings are all there."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from headgate.resilience.breaker import STATES, Settings
from headgate.resilience.breaker.states import EDGES, SWITCHES, diagram

PAGE = (Path(__file__).parents[2] / "docs" / "breaker.md").read_text()


def test_the_diagram_is_drawn_from_the_table() -> None:
    assert f"```mermaid\n{diagram()}```" in PAGE
    for (state, word), aim in EDGES.items():
        line = f"any --> {aim} : {word}()" if word in SWITCHES else f"{state} --> {aim} :"
        assert line in diagram()


def test_the_table_is_the_codes() -> None:
    said = {True: "yes", False: "no"}
    for name, row in STATES.items():
        assert f"| `{name}` | {row.passes} | {said[row.counts]} | {said[row.trips]} |" in PAGE


def test_every_setting_is_explained() -> None:
    for field in fields(Settings):
        assert f"`{field.name}`" in PAGE, field.name
        assert field.name in (Settings.__doc__ or ""), field.name
