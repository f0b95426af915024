"""A real HTTP service turns slow and then dies; two shops call it, one of them protected.

Both serve the same customers at the same pace, from four threads. The plain shop calls the price
service as it comes. The protected one has a policy around the same call: a time limit in a pool of
its own, a breaker, and the last good price, or a list price, in place of an answer. Printed is how
long a customer waits, as a number and as a bar, and how many get no page at all. With `--plot` the
same is drawn into chaos.svg.
"""

import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from headgate.resilience import Breaker, LastGood, Policy, Pool

PHASES = ("healthy", "slow", "dead", "healthy again")
LENGTH = 0.4
"""Seconds of each phase."""
SLOW = 0.3
THREADS, PACE = 4, 0.01


class Prices(BaseHTTPRequestHandler):
    """The price service."""

    slow = False

    def do_GET(self) -> None:
        if Prices.slow:
            time.sleep(SLOW)
        body = b"9.99"
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # whoever asked is gone

    def log_message(self, *words: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class Service:
    """The price service as a process that can be ended and started again on the same port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._server: Server | None = None

    def start(self) -> None:
        self._server = Server(("127.0.0.1", self.port), Prices)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as response:
        return str(response.read().decode())


def protected(url: str) -> Callable[[], str]:
    """The same call, with a policy around it."""
    policy = Policy(
        "prices",
        fallback="10.00 (list price)",
        last_good=LastGood(60, key=lambda *_: "price"),
        breaker=Breaker("prices", failure_ratio=0.5, window=20, minimum=5, wait=0.1, probes=2),
        bulkhead=Pool(8, name="prices"),
        time_limit=0.05,
    )
    return lambda: str(policy.call(fetch, url))


def trouble(call: Callable[[], str]) -> dict[str, Any]:
    """Serve customers while the service goes through its phases; what they saw, by phase."""
    seen: dict[str, list[tuple[float, bool]]] = {phase: [] for phase in PHASES}
    phase, over = PHASES[0], threading.Event()

    def customers() -> None:
        while not over.is_set():
            now, start = phase, time.monotonic()
            try:
                call()
                served = True
            except OSError:
                served = False
            seen[now].append((time.monotonic() - start, served))
            time.sleep(PACE)

    threads = [threading.Thread(target=customers) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for phase in PHASES:
        Prices.slow = phase == "slow"
        if phase == "dead":
            SERVICE.stop()
        elif phase == "healthy again":
            SERVICE.start()
        time.sleep(LENGTH)
    over.set()
    for thread in threads:
        thread.join()
    return seen


def summary(seen: dict[str, Any]) -> dict[str, tuple[int, int, float]]:
    """For each phase: pages served, pages lost, and the median wait in milliseconds."""
    return {
        phase: (
            sum(served for _, served in pages),
            sum(not served for _, served in pages),
            statistics.median([took for took, _ in pages] or [0.0]) * 1000,
        )
        for phase, pages in seen.items()
    }


def bar(wait: float, longest: float) -> str:
    return "#" * max(1, round(30 * wait / longest))


def plot(results: dict[str, dict[str, Any]]) -> None:
    """Draw the waits, plain beside protected; above each bar how many pages were lost."""
    longest = max(wait for found in results.values() for _, _, wait in found.values())
    drawn = []
    for place, (name, found) in enumerate(results.items()):
        colour = ("#c44e52", "#4c72b0")[place]
        drawn.append(f'<text x="{70 + 120 * place}" y="20" fill="{colour}">{name}</text>')
        for number, phase in enumerate(PHASES):
            _, lost, wait = found[phase]
            x, height = 70 + 120 * number + 40 * place, 1 + 180 * wait / longest
            drawn.append(
                f'<rect x="{x}" y="{240 - height:.0f}" width="36" height="{height:.0f}" '
                f'fill="{colour}"/><text x="{x}" y="{232 - height:.0f}">{wait:.0f} ms</text>'
            )
            if lost:
                drawn.append(f'<text x="{x}" y="{218 - height:.0f}">{lost} lost</text>')
    for number, phase in enumerate(PHASES):
        drawn.append(f'<text x="{70 + 120 * number}" y="260">{phase}</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="560" height="280" font-size="12" '
    Path("chaos.svg").write_text(f'{head}font-family="sans-serif">{"".join(drawn)}</svg>')
    print("drawn: chaos.svg")


SERVICE = Service()


def main(draw: bool = False) -> dict[str, bool]:
    url = f"http://127.0.0.1:{SERVICE.port}/"
    results = {}
    for name, call in (("plain", lambda: fetch(url)), ("protected", protected(url))):
        SERVICE.start()
        results[name] = summary(trouble(call))
        SERVICE.stop()
    longest = max(wait for found in results.values() for _, _, wait in found.values())
    for name, found in results.items():
        for phase, (served, lost, wait) in found.items():
            words = f"{name:9}  {phase:13}  {served:4} served  {lost:4} lost  {wait:6.1f} ms"
            print(f"{words}  {bar(wait, longest)}")
    if draw:
        plot(results)
    plain, safe = results["plain"], results["protected"]
    return {
        "nobody was lost behind the policy": not any(lost for _, lost, _ in safe.values()),
        "the plain shop lost customers": plain["dead"][1] > 0,
        "slow: the policy's customers wait less": safe["slow"][2] < plain["slow"][2] / 2,
    }


if __name__ == "__main__":
    main(draw="--plot" in sys.argv)
