"""The options of a zone, and its address."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from zone_tools import SIZE_OF

from headgate import Limiter, ManualClock, StoreError
from headgate.stores import open_store
from headgate.stores.zone import ZoneStore
from headgate.stores.zone.layout import LARGEST, SMALLEST, shape_of


class TestOptions:
    @pytest.mark.parametrize("size", [SMALLEST, SMALLEST + 1, 100_000, 1 << 20, 1 << 30, LARGEST])
    def test_a_size_is_shared_out(self, size: int) -> None:
        shape = shape_of(size)
        assert size <= shape.size < size + 4096
        used = 4096 + 16 * shape.entries + 8 * shape.buckets + 64 * (shape.chunks - 1)
        assert shape.size - 256 < used <= shape.size

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"size": 1000}, "from 65536 to"),
            ({"size": "16MiB"}, "a number of bytes"),
            ({"on_full": "explode"}, "'evict' or 'deny'"),
            ({"patience": 0}, "above 0"),
            ({"patience": True}, "patience is a number of seconds above 0, not True"),
            ({"patience": "1"}, "patience is a number of seconds above 0, not '1'"),
            ({"keys": "no"}, "keys is True or False, not 'no'"),
            ({"keys": 1}, "keys is True or False, not 1"),
            ({"mode": "0600"}, "mode is a number such as 0o600, not '0600'"),
            ({"mode": True}, "mode is a number such as 0o600, not True"),
            ({"mode": 0o200}, "lets the owner read and write, not 0o200"),
            ({"mode": 0o4600}, "mode is from 0o600 to 0o777 .* not 0o4600"),
            ({"mode": -1}, "mode is from 0o600 to 0o777"),
        ],
    )
    def test_bad_options(self, tmp_path: Path, options: dict[str, Any], error: str) -> None:
        with pytest.raises((TypeError, ValueError), match=error):
            ZoneStore(tmp_path / "zone", **options)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("options", [{"keys": "no"}, {"patience": True}, {"patience": 0}])
    def test_bad_options_without_a_name(self, options: dict[str, Any]) -> None:
        with pytest.raises((TypeError, ValueError), match=r"^(keys|patience) is"):
            ZoneStore.anonymous(size=SIZE_OF, **options)

    def test_bad_paths(self, tmp_path: Path) -> None:
        path: Any = os.fsencode(tmp_path / "zone")
        with pytest.raises(TypeError, match="a zone's path is text or a Path, not b'"):
            ZoneStore(path, size=SIZE_OF)
        with pytest.raises(ValueError, match="a path has no zero byte"):
            ZoneStore(f"{tmp_path}/a\0b", size=SIZE_OF)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("a%20b", b"a b"),
            ("p%q+%2B", b"p%q++"),
            ("\u00fc%C3%BC", "\u00fc\u00fc".encode()),
            ("new\nline\t\r", b"new\nline\t\r"),
            ("%0A ", b"\n "),
            ("%ff%FE", b"\xff\xfe"),
            ("\udcff", b"\xff"),  # as Python reads a name that is not UTF-8
            ("[::1", b"[::1"),
        ],
    )
    def test_every_file_has_an_address(self, tmp_path: Path, text: str, name: bytes) -> None:
        store = ZoneStore.from_url(f"zone://{tmp_path}/{text}?size=64KiB")
        assert os.listdir(os.fsencode(tmp_path)) == [name]
        assert os.fsencode(store.path) == os.path.join(os.fsencode(tmp_path), name)

    def test_address(self, tmp_path: Path) -> None:
        path = tmp_path / "a zone?"
        address = f"zone://{tmp_path}/a%20zone%3F?size=128KiB&keys=yes&mode=0640&patience=2.5"
        limiter = Limiter("5/minute", store=address)
        store = limiter.store
        assert isinstance(store, ZoneStore)
        assert (store.path, store.size) == (str(path), 128 << 10)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert limiter.hit("k").allowed
        assert store.top(1)[0]["hits"] == 1
        limiter.close()
        assert store.closed

    def test_anonymous_address(self) -> None:
        limiter = Limiter("5/minute", store="zone://?size=64KiB&on_full=deny", clock=ManualClock())
        assert limiter.hit("k").remaining == 4

    @pytest.mark.parametrize(
        ("address", "error"),
        [
            ("zone://host/path", "third slash"),
            ("zone:///nowhere/x?size=5MB", "512KiB, 16MiB, 1GiB or in bytes, not '5MB'"),
            ("zone:///nowhere/x?size=5", "from 65536"),
            ("zone:///nowhere/x?colour=red", "no option 'colour'; known are size"),
            ("zone:///nowhere/x?keys=perhaps", "yes or no"),
            ("zone:///nowhere/x?size=64KiB&size=1MiB", "given twice"),
            ("zone:///nowhere/x?mode=rw", "0600"),
            ("zone:///nowhere/x?mode=-1", "mode is written as 0600, not '-1'"),
            ("zone:///nowhere/x?mode=100777", "mode is written as 0600, not '100777'"),
            ("zone:///nowhere/x?mode=0200", "lets the owner read and write, not 0o200"),
            ("zone:///nowhere/x?patience=nan", "patience is a number of seconds above 0"),
            ("zone:///nowhere/x?size=64KiB\nMiB", "512KiB, 16MiB, 1GiB or in bytes"),
            ("zone:///nowhere/x%00y", "a path has no zero byte"),
            ("zone:///nowhere/\ud800", "a character in it that no path can have"),
            ("zone://[::1/x", r"'zone://\[::1/x': a zone's path begins with a third slash"),
            ("zone://\n/nowhere/x", "third slash"),
            ("zone:///nowhere/x?patience=long", "number of seconds"),
            ("zone:///nowhere/x?size", "bad query field"),
            ("zone:///nowhere/x#y", "%23"),
            ("zone://?mode=0600", "no option 'mode'"),
            ("zones:///nowhere/x", "known are memory://"),
        ],
    )
    def test_bad_addresses(self, address: str, error: str) -> None:
        with pytest.raises(StoreError, match=error):
            open_store(address)
        assert not Path("/nowhere").exists()
