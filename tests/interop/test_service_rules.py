"""What rules lean on, as the service has it: costs that callers write, pages beside the file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from service_tools import Running

RULES = """
version: 1
rules:
  - {name: paid, match: {path: /paid}, limit: 2/day fixed-window,
     cost: {header: X-Cost, least: 1}}
  - {name: trusting, match: {path: /trusting}, limit: 2/day fixed-window, cost: {header: X-Cost}}
  - {name: busy, match: {path: /busy}, limit: 1/day fixed-window, otherwise: {page: busy.html}}
"""


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """Started from another folder than that of its rules."""
    for name in ("conf", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "busy.html").write_text("<p>beside the rules</p>")
    (tmp_path / "elsewhere" / "busy.html").write_text("<p>in the working directory</p>")
    monkeypatch.chdir(tmp_path / "elsewhere")
    return Running(tmp_path / "conf", RULES)


def test_costs_and_pages(running: Running) -> None:
    with contextlib.closing(running.client()) as client:

        def passes(path: str) -> list[bool]:
            call = {"path": path, "headers": {"x-cost": "0"}}
            return [client.post("/v1/check", call).json["allowed"] for _ in range(3)]

        try:
            assert passes("/paid") == [True, True, False]
            assert passes("/trusting") == [True, True, True]
            asked = {"x_forwarded_method": "GET", "x_forwarded_for": "192.0.2.7"}
            answers = [
                client.get("/auth/traefik", x_forwarded_uri="/busy", **asked) for _ in range(2)
            ]
            assert [answer.status for answer in answers] == [200, 429]
            assert answers[1].body == b"<p>beside the rules</p>"
        finally:
            running.stop()
