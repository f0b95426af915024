"""Workers: a gateway in several processes that share one socket and one store.

    python -m headgate.gateway.workers LISTENER CONTROL

is one of them, and started as `service/children.py` says.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace

from ..errors import HeadgateError
from ..service.children import READY, Child, Program, end, inherited, keep, say_broken
from ..service.logs import set_up
from .serving import run
from .settings import GatewaySettings, seconds_of

__all__ = ["SETTINGS", "run_workers"]

SETTINGS = "HEADGATE_GATEWAY"
"""The variable of the environment that has the settings, as JSON."""
logger = logging.getLogger("headgate")


async def _run(
    settings: GatewaySettings, listener: socket.socket, ready: Callable[[], object]
) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    program = Program("headgate.gateway.workers", listener, {SETTINGS: settings.as_json()})
    workers = [Child(each, program) for each in range(1, settings.workers + 1)]

    def reload() -> None:
        for worker in workers:
            worker.tell(signal.SIGHUP)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    keeping: list[asyncio.Task[None]] = []
    try:
        await asyncio.gather(*(worker.start() for worker in workers))
        for worker in workers:
            again = keep(worker.name, worker.ended, worker.start, stopping, logger)
            keeping.append(loop.create_task(again))
        ready()
        await stopping.wait()
    finally:
        stopping.set()
        for task in keeping:
            task.cancel()
        await end(workers, seconds_of(settings.drain))


def run_workers(
    settings: GatewaySettings, listener: socket.socket, ready: Callable[[], object]
) -> None:
    """Serve by several processes until a signal says otherwise."""
    settings = replace(settings, store=settings.store_url or "")
    asyncio.run(_run(settings, listener, ready))


def main(arguments: list[str]) -> int:
    """Be one of the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process tells when to stop
    settings = GatewaySettings.from_json(os.environ[SETTINGS])
    set_up(settings.log, settings.log_level)
    listener, control = inherited(arguments)
    try:
        run(settings, listener, lambda: control.sendall(READY), control)
    except HeadgateError as error:
        say_broken(control, error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
