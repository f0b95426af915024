"""Workers: who is warned that it counts apart, and who is left in peace; in real processes."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import headgate
from headgate import AsyncLimiter, Limit, Limiter, SeveralWorkersWarning, workers
from headgate.workers import Crowd

SOURCE = Path(headgate.__file__).parents[1]
FORK = "import os, time\nfrom headgate import *\nlimiter = Limiter('100/minute')\n"
MAIN = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from headgate import Limiter, ManualClock

limiter = Limiter("100/minute")
simulated = Limiter("100/minute", clock=ManualClock())

def use(barrier):
    limiter.hit("k")
    together(barrier)

def simulate(barrier):
    simulated.hit("k")
    together(barrier)

def together(barrier):  # no worker does the work of two
    barrier.wait(60)

if __name__ == "__main__":
    kind, method, count, what = sys.argv[1:]
    context, count, work = multiprocessing.get_context(method), int(count), globals()[what]
    with multiprocessing.Manager() as manager:
        barrier = manager.Barrier(count)
        if kind == "executor":
            with ProcessPoolExecutor(count, mp_context=context) as pool:
                list(pool.map(work, [barrier] * count))
        elif kind == "pool":
            with context.Pool(count) as pool:
                pool.map(work, [barrier] * count, chunksize=1)
        else:
            children = [context.Process(target=work, args=(barrier,)) for _ in range(count)]
            for child in children:
                child.start()
            for child in children:
                child.join()
"""
BOTH = """import asyncio, os
from headgate import *
limiter = {made}
async def hit():
    await limiter.hit("k")
here, there = os.pipe(), os.pipe()
def use():
    {use}
if os.fork():
    os.close(here[1])
    os.read(here[0], 1)
    use()
    use()
    os.close(there[1])
    os.wait()
else:
    os.close(there[1])
    use()
    os.close(here[1])
    os.read(there[0], 1)  # stays until the parent, which is the second, was warned or is gone
"""
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def said(path: Path, code: str, *args: str, fails: bool = False, **env: str) -> list[str]:
    """What a script is warned of, under the filters that Python has by itself."""
    script = path / "script.py"
    script.write_text(code)
    run = subprocess.run(
        [sys.executable, str(script), *args], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "", **env},
    )  # fmt: skip
    assert (run.returncode != 0) is fails, run.stderr
    return [line for line in run.stderr.splitlines() if "SeveralWorkersWarning: " in line]


# -- left in peace


def test_an_ordinary_process() -> None:
    """Also one of pytest-xdist's, when the tests run there."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Limiter("100/minute").hit("k")
        AsyncLimiter("100/minute")
    assert workers.server() is None
    assert workers.pool() is None


@forks
@pytest.mark.parametrize(
    "code",
    [
        # Only the child goes on with it.
        "if os.fork(): os.wait()\nelse: limiter.hit('k')",
        # Only the parent does.
        "if os.fork(): limiter.hit('k'), os.wait()",
        # Each has one of its own.
        "limiter.hit('k')\nif os.fork(): os.wait()\nelse: Limiter('100/minute').hit('k')",
        # One after the other.
        "for _ in range(3):\n  if not os.fork(): limiter.hit('k'), os._exit(0)\n  os.wait()",
        # The parent has gone, as that of a daemon does.
        "limiter.hit('k')\nparent = os.getpid()\nif os.fork(): limiter.hit('k'), os._exit(0)\n"
        "while os.getppid() == parent: time.sleep(0.01)\nlimiter.hit('k')",
        # They use different ones.
        "other = Limiter('5/minute')\nif os.fork(): limiter.hit('k'), os.wait()\n"
        "else: other.hit('k')",
        # The time is not that of the world.
        "limiter = Limiter('1/minute', clock=ManualClock())\nchild = os.fork()\nlimiter.hit('k')",
    ],
)
def test_forks_that_share_nothing(tmp_path: Path, code: str) -> None:
    assert said(tmp_path, FORK + code) == []


@pytest.mark.parametrize(
    "how",
    [
        ("executor", "spawn", "1", "use"),
        ("executor", "spawn", "2", "together"),  # has imported the limiter, and leaves it alone
        ("executor", "spawn", "2", "simulate"),
        pytest.param(("executor", "fork", "1", "use"), marks=forks),
        pytest.param(("pool", "fork", "1", "use"), marks=forks),
        pytest.param(("process", "fork", "1", "use"), marks=forks),
    ],
    ids=" ".join,
)
def test_pools_that_share_nothing(tmp_path: Path, how: tuple[str, ...]) -> None:
    assert said(tmp_path, MAIN, *how) == []


# -- warned


@forks
@pytest.mark.parametrize(
    ("made", "use"),
    [
        ("Limiter('100/minute')", "limiter.hit('k')"),
        ("Limiter('100/minute')", "limiter.hit_many(['k', 'l'])"),
        ("Limiter('100/minute')", "limiter.wait('k')"),
        ("Limiter('100/minute', '5/second')", "limiter.hit('k')"),
        ("Limiter('100/minute', store=MemoryStore())", "limiter.hit('k')"),
        ("Limiter('2 concurrent')", "limiter.hold('k').__enter__()"),
        ("AsyncLimiter('100/minute')", "asyncio.run(hit())"),
    ],
)
def test_a_limiter_used_on_both_sides_of_a_fork(tmp_path: Path, made: str, use: str) -> None:
    code = BOTH.format(made=made, use=use)
    (line,) = said(tmp_path, code)
    asked = 5 if "asyncio" in use else 8
    assert line.startswith(f"{tmp_path / 'script.py'}:{asked}: SeveralWorkersWarning: headgate ")
    assert "uses the same limiter since a fork: each counts for itself" in line
    assert 'store="zone:///' in line


@forks
def test_the_way_in_is_as_short_as_before(tmp_path: Path) -> None:
    code = (
        "way = limiter._prepared, limiter.hit, set(vars(limiter))\n"
        "if os.fork(): os.wait()\n"
        "assert (limiter._prepared, limiter.hit) != way[:2]\n"
        "assert limiter.hit('k').remaining == 99\n"
        "assert (limiter._prepared, limiter.hit, set(vars(limiter))) == way\n"
    )
    assert said(tmp_path, FORK + code) == []


@pytest.mark.parametrize(
    "how",
    [
        ("executor", "spawn", "2", "use"),
        ("pool", "spawn", "2", "use"),
        pytest.param(("executor", "fork", "3", "use"), marks=forks),
        pytest.param(("pool", "fork", "3", "use"), marks=forks),
        pytest.param(("process", "fork", "2", "use"), marks=forks),
    ],
    ids=" ".join,
)
def test_workers_of_a_pool(tmp_path: Path, how: tuple[str, ...]) -> None:
    lines = said(tmp_path, MAIN, *how)
    assert 1 <= len(lines) <= int(how[2])
    assert all("limiter.hit" in MAIN.splitlines()[int(x.split(":")[1]) - 1] for x in lines)
    if how[0] == "executor" or how[:2] == ("pool", "fork"):
        count = int(how[2])
        assert f"this process is one of {count} process pool workers" in lines[0]
        assert f"so '100/minute' admits up to {count * 100} in all" in lines[0]


SEEN = "import sys, types\nsys.modules['uwsgi'] = types.SimpleNamespace(numproc=4)\n"
TWICE = f"{SEEN}from headgate import *\nLimiter('100/minute')\nAsyncLimiter('5/minute')\n"


def test_once(tmp_path: Path) -> None:
    (line,) = said(tmp_path, TWICE)
    assert line.startswith(f"{tmp_path / 'script.py'}:4: SeveralWorkersWarning: headgate ")
    assert "one of 4 uWSGI workers" in line
    assert "'100/minute' admits up to 400 in all" in line


def test_silenced(tmp_path: Path) -> None:
    ignore = "warnings.simplefilter('ignore', headgate.SeveralWorkersWarning)\n"
    assert "warnings.simplefilter(" in said(tmp_path, TWICE)[0]
    assert said(tmp_path, f"import headgate, warnings\n{ignore}{TWICE}") == []
    assert said(tmp_path, TWICE, PYTHONWARNINGS="ignore:headgate") == []


def test_as_an_error(tmp_path: Path) -> None:
    assert len(said(tmp_path, TWICE, fails=True, PYTHONWARNINGS="error")) == 1


# -- what is seen, where the servers themselves are not at hand


class FakeProcess:
    """What a server leaves to be seen in its worker."""

    def __init__(self, name: str = "SpawnProcess-1", **more: Any) -> None:
        self.name = name
        self.__dict__.update(more)


def config(package: str, **values: Any) -> Any:
    kind = type("Config", (), {**values, "__module__": f"{package}.config"})
    return {"config": kind()}


@pytest.mark.parametrize(
    ("process", "workers_seen"),
    [
        (FakeProcess(), None),
        (FakeProcess(_kwargs={}), None),
        (FakeProcess(_kwargs=config("other", workers=4)), None),
        (FakeProcess(_kwargs=config("uvicorn", workers=4, reload=False)), 4),
        (FakeProcess(_kwargs=config("uvicorn", workers=4, reload=True)), 1),
        (FakeProcess(_kwargs=config("hypercorn", workers=3)), 3),
        (FakeProcess(_kwargs=config("hypercorn", workers=1)), 1),
        (FakeProcess("granian-worker", _args=(1, "more")), None),
        (FakeProcess("granian-worker", _args=(2, "more")), 0),
    ],
)
def test_servers(
    monkeypatch: pytest.MonkeyPatch, process: FakeProcess, workers_seen: int | None
) -> None:
    monkeypatch.setattr(multiprocessing.process, "current_process", lambda: process)
    monkeypatch.setattr(multiprocessing.process, "parent_process", lambda: FakeProcess())
    seen = workers.server()
    assert (None if seen is None else seen.workers) == workers_seen


@pytest.mark.parametrize(("place", "several"), [(0, False), (1, True)])
def test_celery(monkeypatch: pytest.MonkeyPatch, place: int, several: bool) -> None:
    kind = type("ForkProcess", (FakeProcess,), {"__module__": "billiard.context"})
    process = kind("ForkPoolWorker-7", index=place)
    monkeypatch.setattr(multiprocessing.process, "current_process", lambda: process)
    assert (workers.pool() is not None) is several
    process = FakeProcess("Process-7", index=place)  # somebody's own, with a number of his own
    assert workers.pool() is None


@pytest.mark.parametrize("kept", [SimpleNamespace(numproc="many"), ModuleType("uwsgi")])
def test_what_has_another_form_is_not_seen(monkeypatch: pytest.MonkeyPatch, kept: Any) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", kept)
    monkeypatch.setitem(sys.modules, "gunicorn.workers.base", ModuleType("base"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Limiter("100/minute").hit("k")


@pytest.mark.parametrize(
    ("limit", "count", "says"),
    [
        ("100/minute", 4, "so '100/minute' admits up to 400 in all."),
        ("2 concurrent", 3, "so '2 concurrent' admits up to 6 in all."),
        ("9/second token-bucket burst 5", 2, "admits up to 2 times as much in all."),
        ("100/minute", 0, "so each admits '100/minute'."),
    ],
)
def test_what_it_means(limit: str, count: int, says: str) -> None:
    assert says in workers._text(Limit.of(limit), Crowd("there are some", count))
    assert issubclass(SeveralWorkersWarning, UserWarning)  # which Python shows unasked
