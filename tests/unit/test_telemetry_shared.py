"""Workers that count in one file: real processes, killed and forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from gate_tools import gate_of, rule
from telemetry_tools import ANNA, Hands, seen

import headgate
from headgate.errors import HeadgateError
from headgate.telemetry import Telemetry
from headgate.telemetry.shared import Area

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX locks")

WORKER = """
import sys
from headgate import Facts, Gate, Limit
from headgate.rules.model import KeyPart, Rule, RuleSet
from headgate.telemetry import Telemetry

limits = Limit.parse("3/minute"), Limit.parse("9 concurrent")
gate = Gate(RuleSet((
    Rule("api", key=(KeyPart("user"),), limits=limits[:1]), Rule("pool", limits=limits[1:]),
)))
telemetry = Telemetry(sys.argv[1]).watch(gate)
verdicts = []
for line in sys.stdin:
    if line == "tick\\n":
        telemetry.tick()
    elif line == "for ever\\n":
        while True:
            gate.check(Facts(user="busy"))
    else:
        verdicts += [gate.check(Facts(user=line.strip())) for _ in range(5)]
    print(telemetry._slot.number, flush=True)
"""


class Worker:
    def __init__(self, path: Path) -> None:
        source = str(Path(headgate.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": source},
        )  # fmt: skip

    def do(self, line: str) -> int:
        """Have it work; the number of its slot."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def worker(path: Path) -> Iterator[Worker]:
    made = Worker(path)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.counts"


def test_the_sums_of_all_workers(path: Path) -> None:
    with ExitStack() as stack:
        telemetry = Telemetry(path)
        workers = [stack.enter_context(worker(path)) for _ in range(3)]
        slots = {each.do("anna") for each in workers}
        assert len(slots) == 3
        found = telemetry.snapshot()
        assert found["workers"] == 4
        assert seen(telemetry, "api") == {"allowed": 9, "refused": 6}
        assert seen(telemetry) == {"allowed": 9, "refused": 6}
        assert found["rules"]["pool"]["permits"] == 9
        assert found["store"]["count"] == 15
        assert found["reload"]["updates"] == 0  # as nobody has ticked yet
        for each in workers:
            each.do("tick")
        assert telemetry.snapshot()["reload"]["updates"] == 3
        assert telemetry.top(refused=True)["api"] == [("anna", 6, 0)]
        assert len(telemetry.recent()) == 6
        telemetry.close()


def test_a_worker_that_is_killed(path: Path) -> None:
    telemetry = Telemetry(path)
    with worker(path) as first, worker(path) as second:
        number = first.do("anna")
        second.do("bert")
        first.do("tick")
        assert telemetry.snapshot()["rules"]["pool"]["permits"] == 6
        first.kill()
        assert seen(telemetry, "api") == {"allowed": 6, "refused": 4}
        assert telemetry.snapshot()["rules"]["pool"]["permits"] == 3
        assert telemetry.snapshot()["workers"] == 2
        assert [busy.key for busy in telemetry.top().get("api", [])] == []
        with worker(path) as third:
            assert third.do("carl") == number  # it goes on with the numbers
            assert seen(telemetry, "api") == {"allowed": 9, "refused": 6}
            assert telemetry.snapshot()["rules"]["pool"]["permits"] == 6
    telemetry.close()


def test_killed_in_the_middle_of_counting(path: Path) -> None:
    telemetry = Telemetry(path)
    last = 0
    for _ in range(3):
        with worker(path) as busy:
            busy.do("anna")
            assert busy.process.stdin is not None
            busy.process.stdin.write("for ever\n")
            busy.process.stdin.flush()
            before = sum(seen(telemetry).values())
            for _ in range(1000):
                now = sum(seen(telemetry).values())
                if now > before + 2000:
                    break
        now = sum(seen(telemetry).values())
        assert now > last
        assert now >= before
        last = now
    calls, api = seen(telemetry), seen(telemetry, "api")
    assert abs(calls["refused"] - api["refused"]) <= 3  # one increment for each that was killed
    telemetry.close()


def test_a_file_that_nobody_uses_begins_anew(path: Path) -> None:
    gate = gate_of(rule("api", "5/minute"))
    telemetry = Telemetry(path).watch(gate)
    gate.check(ANNA)
    telemetry.close()
    again = Telemetry(path)
    assert seen(again) == {}
    assert again.snapshot()["workers"] == 1
    again.close()


def test_two_in_one_process_do_not_share_a_slot(path: Path) -> None:
    gate = gate_of(rule("api", "5/minute"))
    first, second = Telemetry(path).watch(gate), Telemetry(path)
    gate.check(ANNA)
    assert first._slot is not None
    assert second._slot is not None
    assert first._slot.number != second._slot.number
    assert seen(second, "api") == {"allowed": 1}
    assert second.totals(own=True).rules == {"": [0] * len(second.totals().rules[""])}
    first.close()
    assert second.snapshot()["workers"] == 1
    assert seen(second, "api") == {"allowed": 1}
    second.close()


def test_what_an_earlier_worker_counted_is_not_ones_own(path: Path) -> None:
    keeper = Telemetry(path)
    gate = gate_of(rule("api", "5/minute"))
    first = Telemetry(path).watch(gate)
    gate.check(ANNA)
    first.close()
    second = Telemetry(path).watch(gate)
    gate.check(ANNA)
    assert seen(second, "api") == {"allowed": 2}
    assert second.totals(own=True).rules["api"][0] == 1
    second.close()
    keeper.close()


def test_every_worker_sees_the_seconds_of_all(path: Path) -> None:
    gate, clock = gate_of(rule("api", "9/minute")), Hands()
    first, second = Telemetry(path, clock=clock).watch(gate), Telemetry(path, clock=clock)
    second.tick()
    gate.check(ANNA)
    clock.now += 1
    second.tick()
    assert second.rolling.second()["api"] == {"allowed": 1}
    first.close()
    second.close()


def test_a_forked_child_counts_for_itself(path: Path) -> None:
    gate = gate_of(rule("api", "9/minute"), rule("pool", "3 concurrent"))
    telemetry = Telemetry(path).watch(gate)
    held = gate.check(ANNA)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            gate.check(ANNA).permit.release()
            mine = telemetry.totals(own=True).rules["api"][0]
            numbers = telemetry.snapshot()
            both = (numbers["workers"], numbers["rules"]["api"]["allowed"]) == (2, 2)
            status = 0 if mine == 1 and both else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert seen(telemetry, "api") == {"allowed": 2}
    assert seen(telemetry, "pool")["permits"] == 1
    assert telemetry.snapshot()["workers"] == 1
    held.permit.release()
    telemetry.close()


def test_more_rules_than_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Area.open(path, slots=2, rows=6)
    many = [rule(f"rule {number}", "9/minute") for number in range(10)]
    gate = gate_of(*many)
    telemetry = Telemetry(path).watch(gate)
    gate.check(ANNA)
    found = telemetry.snapshot()
    assert found["unshared"] == 7  # of 6 rows one is the process's, the store's and all calls'
    assert all(found["rules"][each.name]["allowed"] == 1 for each in many)
    telemetry.close()
    small.close()


def test_workers_that_come_and_go_need_no_more_rows(path: Path) -> None:
    area = Area.open(path, slots=2, rows=5)
    keeper = Telemetry(path)
    for count in range(1, 11):
        gate = gate_of(rule("api", "9/minute"))
        telemetry = Telemetry(path).watch(gate)
        gate.check(ANNA)
        assert "unshared" not in telemetry.snapshot()
        assert seen(telemetry, "api") == {"allowed": count}
        telemetry.close()
    keeper.close()
    area.close()


def test_more_workers_than_slots(path: Path) -> None:
    area = Area.open(path, slots=1, rows=6)
    gate = gate_of(rule("api", "9/minute"))
    first, second = Telemetry(path), Telemetry(path).watch(gate)
    gate.check(ANNA)
    assert second._slot is None
    assert seen(second, "api") == {"allowed": 1}
    assert seen(first, "api") == {}
    assert second.snapshot()["workers"] == 2
    second.close()
    first.close()
    area.close()


def test_a_long_name_has_its_own_row(path: Path) -> None:
    names = ["é" * 200, "é" * 201]
    gate = gate_of(*(rule(name, "9/minute") for name in names))
    telemetry = Telemetry(path).watch(gate)
    gate.check(ANNA)
    counted = [numbers["allowed"] for numbers in telemetry.snapshot()["rules"].values()]
    assert counted == [1, 1]
    telemetry.close()


def test_notes_too_long_are_shortened(path: Path) -> None:
    gate = gate_of(*(rule(f"rule {number}", "1/minute", key="user") for number in range(60)))
    clock = [1000.0]
    first = Telemetry(path, clock=lambda: clock[0]).watch(gate)
    second = Telemetry(path)
    for number in range(200):
        gate.check(type(ANNA)(user=f"{number}{'x' * 80}"))
    assert first.tick()
    assert len(second.top()["rule 7"]) >= 1
    first.close()
    second.close()


def test_a_file_of_something_else(path: Path) -> None:
    path.write_text("a letter, and a long one, so that there is enough of it to be read" * 9)
    with pytest.raises(HeadgateError, match="no file of counts"):
        Telemetry(path)
    assert path.read_text().startswith("a letter")


def test_a_file_that_was_not_finished(path: Path) -> None:
    path.write_bytes(bytes(5000))  # its maker was killed
    telemetry = Telemetry(path)
    assert telemetry._slot is not None
    telemetry.close()


def test_only_its_owner_may_read_it(path: Path) -> None:
    telemetry = Telemetry(path)
    assert path.stat().st_mode & 0o777 == 0o600
    telemetry.close()


def test_a_stopped_worker_is_still_there(path: Path) -> None:
    telemetry = Telemetry(path)
    with worker(path) as first:
        first.do("anna")
        first.process.send_signal(signal.SIGSTOP)
        assert telemetry.snapshot()["workers"] == 2
        assert telemetry.snapshot()["rules"]["pool"]["permits"] == 3
    telemetry.close()
