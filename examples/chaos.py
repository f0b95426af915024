"""A real HTTP service turns slow and then dies; two shops call it, one of them protected.

Both serve the same customers at the same pace, from four threads. The plain shop calls the price
service as it comes. The protected one has a policy around the same call: a time limit in a pool of
its own, a breaker, and the last good price, or a list price, in place of an answer. Printed is how
long a customer waits, and how many get no page at all. With `--plot` (and matplotlib) the same is
drawn into chaos.png.
"""

import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


def plot(results: dict[str, dict[str, Any]]) -> None:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("--plot needs matplotlib", file=sys.stderr)
        return
    figure, (above, below) = plt.subplots(2, 1, sharex=True, layout="constrained")
    for place, (name, found) in enumerate(results.items()):
        at = [number + (place - 0.5) * 0.4 for number in range(len(PHASES))]
        above.bar(at, [found[phase][2] for phase in PHASES], 0.4, label=name)
        below.bar(at, [found[phase][1] for phase in PHASES], 0.4)
    above.set_ylabel("median wait, ms")
    below.set_ylabel("pages lost")
    below.set_xticks(range(len(PHASES)), PHASES)
    above.legend()
    figure.savefig("chaos.png")
    print("drawn: chaos.png")


SERVICE = Service()


def main(draw: bool = False) -> dict[str, bool]:
    url = f"http://127.0.0.1:{SERVICE.port}/"
    results = {}
    for name, call in (("plain", lambda: fetch(url)), ("protected", protected(url))):
        SERVICE.start()
        results[name] = summary(trouble(call))
        SERVICE.stop()
        for phase, (served, lost, wait) in results[name].items():
            print(f"{name:9}  {phase:13}  {served:4} served  {lost:4} lost  {wait:6.1f} ms")
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
