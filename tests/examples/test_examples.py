"""Every example does what it says, and every Python block of the docs runs as printed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headgate import Limit
from servers import Server

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

OUTCOMES: dict[str, Any] = {
    "adaptive": {
        "60 workers": True,
        "30 workers": True,
        "10 ms left": "refused at once",
        "reports": 28,
        "searches": 6,
        "checkout": 17,
    },
    "metered_api": [
        "200, 9700 left",
        "not sent: our own limit, for 0.6 s",
        "200, 8500 left",
        "429, 8500 left",
        "not sent: the model asked us to wait 20 s",
        "200, 9991 left",
    ],
    "aiohttp_app": [
        "ann, guess: 401",
        "ann, secret: 200",
        "ann, guess: 401",
        "ann, secret: 429",
        "bob, secret: 200",
        "cups: 3 left",
        "a second feed: 503",
    ],
    "chaos": {
        "nobody was lost behind the policy": True,
        "the plain shop lost customers": True,
        "slow: the policy's customers wait less": True,
    },
    "daily_check_in": [True, False, True, False],
    "database_guard": {
        "reports": 8,
        "at once": 2,
        "writes": ["written", "written", "written", "refused by rule writes"],
    },
    "django_app": {
        "look": [200] * 3,
        "login": [200] * 5,
        "guess": [401] * 3 + [429] * 2,
        "order": [201, 429, 201],
    },
    "evenly_spread_api": {
        "50/10s token-bucket initial 0, ten at once": [5] * 10,
        "50/10s even, ten at once": [1] * 10,
        "50/10s even, ten 100 ms apart": [5] * 10,
    },
    "failed_payments": {
        "good": ["paid"] * 5,
        "bad": ["declined", "declined", "paid", "declined", *["blocked for 24 h"] * 2],
        "guesses": ["declined"] * 3,
    },
    "fastapi_app": {
        "login": [200] * 4 + [401, 401, 429],
        "orders": [200, 200, 200, 429],
        "export": [200, 429, 200],
    },
    "flash_sale": (0, 100),
    "flask_app": {
        "look": [200] * 3,
        "login": [200] * 5,
        "guess": [401] * 3 + [429] * 2,
        "order": [201, 429, 201],
        "export": [200, 503, 200],
        "health": [200] * 3,
    },
    "grpc_server": [
        "ann: OK",
        "ann: OK",
        "ann: RESOURCE_EXHAUSTED, again in 90 s",
        "bob: OK",
        "a second stream: UNAVAILABLE",
        "the first: 3 cups, 2 cups",
        "a third: 3 plates, 2 plates",
    ],
    "hourly_and_minutely": {minute: 0 if 50 <= minute < 60 else 10 for minute in range(62)},
    "llm_quota": [
        "estimated 4500, cost 2500, left 7500",
        "estimated 6500, cost 4000, left 3500",
        "refused, 3500 left",
        "estimated 4000, cost 2500, left 11000",
    ],
    "llm_tokens": [
        "estimated 4100, cost 300, left 9700",
        "estimated 9200, cost 3600, left 6100",
        "refused, retry after 4.8 s",
        "estimated 6900, cost 6000, left 2100",
    ],
    "one_order_per_30_minutes": [
        " 0 min  ann    accepted",
        " 0 min  bob    accepted",
        "10 min  ann    refused, try again in 20 min",
        "30 min  ann    accepted",
    ],
    "paced_calls": [(page, place / 5) for place, page in enumerate([0, 1, 9, 2, 3, 4, 5, 6, 7, 8])],
    "plans": {"ann": 10, "bob": 100, "guest": 2, "ann, upgraded": 90, "guest, helped": 3},
    "queue_worker": [(order, order / 5) for order in range(10)],
    "redis_api": {"ann": [200, 200, 200, 429, 429], "bob": [200] * 6 + [429]},
    "workers": {"memory": 400, "zone": 100},
    "zone_top": [
        ("(ip, 10.0.0.8)", 20, 460),
        ("(ip, 10.0.0.9)", 20, 11),
        ("(ip, 10.0.0.7)", 12, 0),
    ],
}


ON_A_SERVER = [path for path in EXAMPLES if "REDIS_URL" in path.read_text(encoding="utf-8")]


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[str]:
    """A server for the pages, whose blocks take it from REDIS_URL; with time, as tests are slow."""
    with Server() as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDIS_URL", url := f"{started.url}?budget=10s")
        yield url


class Block(NamedTuple):
    """A Python block of a page, and what the page says that it prints."""

    line: int
    code: str
    printed: str | None


def blocks_of(page: Path) -> list[Block]:
    """The Python blocks of a page; a text block right below one is its output."""
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    blocks = []
    for fence, after in zip_longest(fences, fences[1:]):
        if fence[1] != "python":
            continue
        touches = after is not None and not text[fence.end() : after.start()].strip()
        printed = after[2] if after is not None and touches and after[1] == "text" else None
        blocks.append(Block(text.count("\n", 0, fence.start()) + 1, fence[2], printed))
    return blocks


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder that knows nothing but headgate."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, encoding="utf-8", timeout=300, check=False,
    )  # fmt: skip


def test_every_example_is_checked() -> None:
    assert {path.stem for path in EXAMPLES} == set(OUTCOMES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        outcome = runpy.run_path(str(path))["main"]()
    assert outcome == OUTCOMES[path.stem]
    assert printed.getvalue().strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_as_a_command(path: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path, "-W", "error", str(path))
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert not run.stderr


@pytest.mark.parametrize("path", ON_A_SERVER, ids=lambda path: path.stem)
def test_example_without_a_server(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL")
    with contextlib.redirect_stdout(io.StringIO()):
        assert runpy.run_path(str(path))["main"]() == OUTCOMES[path.stem]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_a_page_run_in_order(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__docs__"}
    for block in blocks_of(page):
        # Blank lines in front, so that an error names the line of the page.
        code = compile("\n" * block.line + block.code, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        if block.printed is not None:
            assert printed.getvalue() == block.printed, f"{page.name}, line {block.line}"


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_first_example_of_the_readme_in_a_fresh_directory(name: str, tmp_path: Path) -> None:
    first = blocks_of(ROOT / name)[0]
    (tmp_path / "first.py").write_text(first.code, encoding="utf-8")
    run = run_in(tmp_path, "first.py")
    assert run.stdout == first.printed, run.stderr


def anchors_of(page: Path) -> set[str]:
    """What a link may name behind its #: the headings, written as GitHub does."""
    headings = re.findall(
        r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        if target.endswith("img/benchmarks.svg"):  # made by `make bench`
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_limit_a_page_names_can_be_read(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for limit in re.findall(r"`\"?(\d\w*(?:/| per | concurrent)[^`\"]*)\"?`", text):
        if not limit.endswith("..."):
            assert Limit.parse(str(Limit.parse(limit))) == Limit.parse(limit)


def test_both_readmes_show_the_same_code() -> None:
    english, chinese = (
        [block.code for block in blocks_of(ROOT / name)]
        for name in ("README.md", "README.zh-CN.md")
    )
    plain = re.compile(r"#.*|\"[^\"]*\"|'[^']*'")  # comments and words may be translated
    assert [plain.sub("", code) for code in english] == [plain.sub("", code) for code in chinese]
