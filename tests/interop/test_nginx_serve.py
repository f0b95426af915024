"""nginx in front of `headgate serve`: admitted counts are exact."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from asgi_tools import rules_text
from nginx_site import Site
from nginx_tools import free_port


@contextlib.contextmanager
def serving(folder: Path, rules: str) -> Iterator[int]:
    """The service as people start it."""
    port = free_port()
    folder.joinpath("rules.json").write_text(rules)
    arguments = ["--rules", str(folder / "rules.json"), "--listen", f"127.0.0.1:{port}",
                 "--store", f"zone://{folder}/zone?size=1MiB", "--workers", "2", "--grpc", "off",
                 "--admin", "off"]  # fmt: skip
    command = [sys.executable, "-m", "headgate", "serve", *arguments]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while True:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, (folder / "log").read_text()
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_the_whole_of_it_is_exact(tmp_path: Path) -> None:
    """nginx, `headgate serve` with two workers on a zone, and eight clients with one key."""
    rules = rules_text('{"name": "all", "key": ["ip"], "limit": "50/day gcra"}')
    with serving(tmp_path, rules) as port:
        folder = tmp_path / "nginx"
        folder.mkdir()
        site = Site(folder, rules, port)

        def client(_: int) -> list[httpx.Response]:
            with httpx.Client(base_url=f"http://127.0.0.1:{site.port}", timeout=60) as own:
                return [own.get("/") for _ in range(20)]

        try:
            with site.nginx.serving(site.port), ThreadPoolExecutor(8) as pool:
                answers = [answer for some in pool.map(client, range(8)) for answer in some]
        finally:
            site.close()
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (50, 110)
        assert len(site.upstream.seen) == 50
        waits = {
            int(answer.headers["retry-after"]) for answer in answers if answer.status_code == 429
        }
        assert all(1700 < wait <= 1728 for wait in waits)  # a fiftieth of a day
