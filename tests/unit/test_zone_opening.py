"""How a zone's file is made and opened, and what is refused."""

from __future__ import annotations

import multiprocessing
import os
import resource
import stat
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from zone_tools import SIZE_OF

from headgate import Ask, Limit, Limiter, StoreError
from headgate.stores.zone import ZoneStore
from headgate.stores.zone.form import this_form
from headgate.stores.zone.places import BOOT, BUCKETS, FORM, MAGIC, OFFSET, PIDS, SIZE, VERSION
from headgate.stores.zone.zone import open_zone

LIMIT = Limit.parse("5/minute")


def patched(path: Path, place: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(place * 8)
        file.write(struct.pack("=q", value))


def refused(path: Path, match: str) -> None:
    """Opening is refused, and the file is left as it was."""
    before = path.read_bytes()
    with pytest.raises(StoreError, match=match):
        ZoneStore(path, size=SIZE_OF)
    assert path.read_bytes() == before
    assert [other.name for other in path.parent.iterdir()] == [path.name]


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    path = tmp_path / "zone"
    store = ZoneStore(path, size=SIZE_OF)
    store.decide([Ask("take", LIMIT, "k", 3)])
    store.close()
    return path


class TestMaking:
    def test_a_zone_outlives_its_users(self, zone: Path) -> None:
        store = ZoneStore(zone, size=SIZE_OF)
        assert store.decide([Ask("check", LIMIT, "k")])[0].remaining == 2
        assert (store.keys, store.size, store.path) == (1, SIZE_OF, str(zone))

    def test_an_existing_zone_keeps_its_size(self, zone: Path) -> None:
        assert ZoneStore(zone, size=1 << 20).size == SIZE_OF

    @pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
    def test_mode(self, tmp_path: Path, mask: int) -> None:
        old = os.umask(mask)
        try:
            ZoneStore(tmp_path / "a", size=SIZE_OF)
            ZoneStore(tmp_path / "b", size=SIZE_OF, mode=0o660)
        finally:
            os.umask(old)
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"]
        assert modes == [0o600, 0o660]

    def test_space_is_allocated(self, zone: Path) -> None:
        assert zone.stat().st_blocks * 512 >= SIZE_OF

    def test_a_link_is_followed(self, zone: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(zone)
        store = ZoneStore(tmp_path / "link", size=SIZE_OF)
        assert store.decide([Ask("check", LIMIT, "k")])[0].remaining == 2
        (tmp_path / "dangling").symlink_to(tmp_path / "new")
        ZoneStore(tmp_path / "dangling", size=SIZE_OF)
        assert (tmp_path / "new").is_file()

    def test_two_stores_of_one_process(self, zone: Path) -> None:
        first, second = ZoneStore(zone), ZoneStore(zone)
        assert first.decide([Ask("take", LIMIT, "k")])[0].remaining == 1
        first.close()
        assert second.decide([Ask("take", LIMIT, "k")])[0].remaining == 0
        second.close()
        with pytest.raises(StoreError, match="closed"):
            second.decide([Ask("take", LIMIT, "k")])
        for name in ("keys", "evicted", "denied", "recoveries"):
            with pytest.raises(StoreError, match="closed"):
                getattr(second, name)

    def test_many_makers_make_one(self, tmp_path: Path) -> None:
        path = tmp_path / "zone"
        context = multiprocessing.get_context("fork")
        gate, results = context.Barrier(8), context.Queue()

        def work() -> None:
            gate.wait()
            store = ZoneStore(path, size=SIZE_OF)
            results.put(sum(d.allowed for _ in range(3) for d in store.decide([ask])))

        ask = Ask("take", LIMIT, "k")
        workers = [context.Process(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        assert sum(results.get(timeout=60) for _ in workers) == 5
        for worker in workers:
            worker.join()
        assert [other.name for other in tmp_path.iterdir()] == ["zone"]

    def test_no_room_is_an_error_and_leaves_nothing(self, tmp_path: Path) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_OF // 2, hard))
        try:
            with pytest.raises(StoreError, match="cannot be made: File too large"):
                ZoneStore(tmp_path / "zone", size=SIZE_OF)
            with pytest.raises(StoreError, match="cannot be made: File too large"):
                ZoneStore.anonymous(size=SIZE_OF)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert list(tmp_path.iterdir()) == []

    def test_no_folder_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="No such file or directory"):
            ZoneStore(tmp_path / "nowhere" / "zone", size=SIZE_OF)

    def test_a_full_file_system(self) -> None:
        if not Path("/dev/full").exists():
            pytest.skip("no full device")
        with pytest.raises(StoreError, match="not a regular file"):
            ZoneStore("/dev/full", size=SIZE_OF)


class TestRefusing:
    @pytest.mark.parametrize("data", [b"", b"x" * 100, b"x" * 8192, bytes(SIZE_OF)])
    def test_what_is_no_zone(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "file"
        path.write_bytes(data)
        refused(path, "is not a zone")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="cannot be opened: Is a directory"):
            ZoneStore(tmp_path, size=SIZE_OF)

    def test_a_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StoreError, match="not a regular file"):
            ZoneStore(tmp_path / "pipe", size=SIZE_OF)

    @pytest.mark.parametrize(
        ("place", "value", "match"),
        [
            (MAGIC, 0, "is not a zone"),
            (VERSION, 2, "a zone of version 2, and this headgate writes version 1"),
            (FORM, 7, "its form is 7"),
            (SIZE, SIZE_OF * 2, "65536 bytes where 131072 are meant"),
            (BUCKETS, 3, "its header contradicts its size"),
        ],
    )
    def test_another_header(self, zone: Path, place: int, value: int, match: str) -> None:
        patched(zone, place, value)
        refused(zone, match)

    def test_the_other_form(self, zone: Path) -> None:
        patched(zone, FORM, 3 - this_form().number)
        refused(zone, "they lock in different ways")

    @pytest.mark.parametrize("size", [1, 4095, 4096, SIZE_OF - 1, SIZE_OF + 4096])
    def test_another_size(self, zone: Path, size: int) -> None:
        os.truncate(zone, size)
        refused(zone, "is not a zone|is a damaged zone")

    def test_no_permission(self, zone: Path) -> None:
        if os.geteuid() == 0:
            pytest.skip("the superuser may do everything")
        zone.chmod(0o400)
        refused(zone, "Permission denied")


def test_who_opens_while_another_closes_gets_an_open_zone(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    interval = sys.getswitchinterval()
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir())) if files.exists() else 0

    def work() -> None:
        try:
            for _ in range(100):
                store = ZoneStore(tmp_path / "zone", size=SIZE_OF)
                store.decide([Ask("take", LIMIT, "k")])
                store.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert before == (len(list(files.iterdir())) if files.exists() else 0)


@pytest.mark.parametrize("elsewhere", [True, False], ids=["another thread", "a finaliser"])
def test_a_zone_that_is_closed_when_it_was_just_found(
    zone: Path, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, known = ZoneStore(zone), open_zone.__globals__["_zones"]
    closing = threading.Thread(target=first.close)

    class Finding:
        """The zones of this process; who finds one is held up while its only user closes it."""

        def get(self, place: tuple[int, int]) -> object:
            found = known.get(place)
            if not first.closed:
                if elsewhere:
                    closing.start()
                    closing.join(0.1)
                else:
                    first.close()
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(known, name)

        def __setitem__(self, place: tuple[int, int], found: object) -> None:
            known[place] = found

    monkeypatch.setitem(open_zone.__globals__, "_zones", Finding())
    second = ZoneStore(zone)
    if elsewhere:
        closing.join()
    assert first.closed
    assert second.decide([Ask("take", LIMIT, "k")])[0].remaining == 1
    second.close()
    assert second._zone.closed


def _take_one(path: Path, status: int) -> None:
    decision = ZoneStore(path).decide([Ask("take", Limit.parse("1 concurrent"), "k", token=3)])[0]
    os._exit(0 if not decision.allowed else status)


class TestAfterARestart:
    def test_time_goes_on_and_permits_come_back(self, tmp_path: Path) -> None:
        path = tmp_path / "zone"
        store = ZoneStore(path, size=SIZE_OF)
        held, rate = Limit.parse("1 concurrent"), Limit.parse("5/hour")
        assert store.decide([Ask("take", held, "k", token=1), Ask("take", rate, "k", 3)])[0]
        then = store.clock.micros()
        store.close()
        patched(path, BOOT, 123)
        patched(path, OFFSET, -(10**15))  # the monotonic clock began anew
        store = ZoneStore(path)
        assert then <= store.clock.micros() < then + 10_000_000
        assert store.decide([Ask("take", held, "k", token=2)])[0].allowed
        assert store.decide([Ask("check", rate, "k")])[0].remaining == 2
        assert not store.decide([Ask("release", held, "k", token=1)])[0].allowed

    def test_processes_of_another_container(self, tmp_path: Path) -> None:
        path = tmp_path / "zone"
        held = Limit.parse("1 concurrent")
        store = ZoneStore(path, size=SIZE_OF)
        store.decide([Ask("take", held, "k", token=1)])
        then = store.clock.micros()
        patched(path, PIDS, 4711)  # somebody is still there: its ids mean nothing to this one
        again = multiprocessing.get_context("spawn").Process(target=_take_one, args=(path, 1))
        again.start()
        again.join()
        assert again.exitcode == 0
        store.close()
        patched(path, PIDS, 4711)  # nobody is there any more
        store = ZoneStore(path)
        assert store.clock.micros() >= then
        assert store.decide([Ask("take", held, "k", token=2)])[0].allowed

    def test_a_wall_clock_set_back_does_not_count(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "zone"
        store = ZoneStore(path, size=SIZE_OF)
        then = store.clock.micros()
        store.decide([Ask("take", LIMIT, "k")])
        store.close()
        patched(path, BOOT, 123)
        monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
        assert ZoneStore(path).clock.micros() >= then


@pytest.mark.parametrize(
    "text", ["100000/hour sliding-log", "1000000 concurrent", "60000/minute cells 60000"]
)
def test_limits_that_could_outgrow_a_zone_are_refused_at_once(text: str, tmp_path: Path) -> None:
    store = ZoneStore(tmp_path / "zone", size=1 << 20)
    with pytest.raises(StoreError, match=r"may take [\d,]+ bytes.* a zone of ([\d,]+) bytes") as at:
        Limiter(text, store=store)
    size = int(str(at.value).split("a zone of ")[2].split(" ")[0].replace(",", ""))
    if size <= 1 << 26:
        Limiter(text, store=ZoneStore(tmp_path / "larger", size=size))
