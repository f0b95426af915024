"""What a machine and its control groups say of how busy they are; files as Linux has them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.resilience.system import Machine
from headgate.resilience.system.groups import Groups
from headgate.resilience.system.signals import cpus


def told(root: Path, files: dict[str, str]) -> Path:
    """A folder with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class TestMachine:
    @pytest.mark.parametrize("psutil", [True, False])
    def test_reads_something_sensible(self, psutil: bool) -> None:
        machine = Machine(psutil=psutil)
        until = time.monotonic() + 0.02
        while time.monotonic() < until:  # some work
            pass
        reading = machine.read()
        assert reading.cpu is not None
        assert 0 < reading.cpu <= 1
        assert reading.load is None or reading.load >= 0
        assert reading.memory is None or 0 < reading.memory <= 1

    def test_proc(self, tmp_path: Path) -> None:
        stat, memory = tmp_path / "stat", tmp_path / "meminfo"
        stat.write_text("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1\n")
        memory.write_text("MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 250 kB\n")
        machine = Machine(psutil=False, proc=tmp_path, group=tmp_path / "none")
        machine._own = (time.monotonic(), time.process_time())
        stat.write_text("cpu  180 0 110 705 105 0 0 0 0 0\ncpu0 1 1\n")
        reading = machine.read()
        assert reading.cpu == pytest.approx(0.9)
        assert reading.memory == 0.75

    def test_a_container(self, tmp_path: Path) -> None:
        (tmp_path / "cpu.max").write_text("50000 100000\n")
        (tmp_path / "memory.max").write_text("1000\n")
        (tmp_path / "memory.current").write_text("990\n")
        assert cpus(tmp_path) == 0.5
        assert Machine(psutil=False, group=tmp_path).read().memory == 0.99
        (tmp_path / "cpu.max").write_text("max 100000\n")
        (tmp_path / "memory.max").write_text("max\n")
        assert cpus(tmp_path) >= 1
        assert Machine(psutil=False, proc=tmp_path, group=tmp_path).read().memory is None

    def test_nothing_to_read(self, tmp_path: Path) -> None:
        machine = Machine(psutil=False, proc=tmp_path, group=tmp_path)
        assert machine.read().memory is None

    def test_without_psutil(self) -> None:
        code = (
            "import sys; sys.modules['psutil'] = None\n"
            "from headgate.resilience.system import SystemGuard\n"
            "guard = SystemGuard(cpu=0.99, memory=0.999, load=1000)\n"
            "with guard: print(guard.snapshot()['memory'] is not None or sys.platform)\n"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


class TestGroups:
    """Control groups of version 2, of version 1, with groups around ours, and on the host."""

    def test_version_2(self, tmp_path: Path) -> None:
        group = told(tmp_path, {
            "cpu.max": "150000 100000\n", "cpu.stat": "usage_usec 3000000\nuser_usec 1\n",
            "memory.max": "1000\n", "memory.current": "900\n",
            "memory.stat": "anon 300\ninactive_file 400\nactive_file 200\n",
        })  # fmt: skip
        groups = Groups(tmp_path, group)
        assert groups.quotas() == {group: (3.0, 1.5)}
        assert groups.memory() == 0.5  # what was only read makes room at once

    def test_version_1(self, tmp_path: Path) -> None:
        group = told(tmp_path, {
            "cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n",
            "cpuacct/cpuacct.usage": "7000000000\n",
            "memory/memory.limit_in_bytes": "1000\n", "memory/memory.usage_in_bytes": "900\n",
            "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n",
        })  # fmt: skip
        groups = Groups(tmp_path, group)
        assert groups.quotas() == {group / "cpu": (7.0, 0.5)}
        assert groups.memory() == 0.8
        assert cpus(group, tmp_path) == 0.5

    def test_version_1_without_limits(self, tmp_path: Path) -> None:
        group = told(tmp_path, {
            "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "memory/memory.usage_in_bytes": "900\n",
        })  # fmt: skip
        groups = Groups(tmp_path, group)
        assert groups.quotas() == {}
        assert groups.memory() is None

    def test_a_unit_and_the_slice_around_it(self, tmp_path: Path) -> None:
        """As systemd has it on a host: our group is below the root, and each level may bind."""
        told(tmp_path, {"proc/self/cgroup": "1:name=systemd:/x\n0::/apps.slice/shop.service\n"})
        group = told(tmp_path / "group", {
            "apps.slice/cpu.max": "200000 100000\n", "apps.slice/cpu.stat": "usage_usec 9000000\n",
            "apps.slice/memory.max": "1000\n", "apps.slice/memory.current": "950\n",
            "apps.slice/shop.service/cpu.max": "max 100000\n",
            "apps.slice/shop.service/memory.max": "800\n",
            "apps.slice/shop.service/memory.current": "80\n",
        })  # fmt: skip
        groups = Groups(tmp_path / "proc", group)
        assert groups.quotas() == {group / "apps.slice": (9.0, 2.0)}
        assert groups.memory() == 0.95

    @pytest.mark.parametrize("path", ["/docker/4f3a", "/../../elsewhere", "/"])
    def test_a_container_that_is_told_the_path_of_its_host(self, tmp_path: Path, path: str) -> None:
        told(tmp_path, {"proc/self/cgroup": f"4:memory:{path}\n2:cpu,cpuacct:{path}\n"})
        group = told(tmp_path / "group", {
            "cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000",
            "cpuacct/cpuacct.usage": "1000000000",
            "memory/memory.limit_in_bytes": "1000", "memory/memory.usage_in_bytes": "250",
        })  # fmt: skip
        groups = Groups(tmp_path / "proc", group)
        assert groups.quotas() == {group / "cpu": (1.0, 3.0)}
        assert groups.memory() == 0.25

    @pytest.mark.parametrize(
        "files",
        [
            {},
            {"cpu.max": "", "memory.max": "", "memory.current": ""},
            {"cpu.max": "max", "memory.max": "max\n", "memory.current": "nonsense"},
            {"cpu.max": "1 2 3 4", "cpu.stat": "usage_usec"},
            {"cpu.max": "fast 0", "memory.max": "0", "memory.current": "5"},
        ],
    )
    def test_what_cannot_be_read_says_nothing(self, tmp_path: Path, files: dict[str, str]) -> None:
        group = told(tmp_path, files)
        assert Groups(tmp_path, group).memory() is None
        assert Machine(psutil=False, proc=tmp_path, group=group).read().load is not None

    def test_sister_processes_count(self, tmp_path: Path) -> None:
        """A worker that rests in a container whose CPUs the other workers use up."""
        files = {"cpu.max": "200000 100000", "cpu.stat": "usage_usec 0"}
        machine = Machine(psutil=False, proc=tmp_path, group=told(tmp_path, files))
        machine._own = (time.monotonic() - 1000, time.process_time())  # since long ago
        told(tmp_path, {"cpu.stat": "usage_usec 1800000000"})  # 1800 s in 1000 s of two CPUs
        assert machine.read().cpu == pytest.approx(0.9, rel=0.05)
