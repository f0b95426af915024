"""Opening: how a zone's file comes to be, and who may use one that is there already.

A new zone is made under a name of its own and then linked to its path, so nobody ever sees half
of one, and of several who make it at the same time one wins and the others use the winner's.
Its space is allocated at once: a full disk is an error now, not a crash later.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import stat
import sys
import time
from pathlib import Path

from ...errors import StoreError
from .form import Form
from .holders import namespace
from .layout import HEADER, KEPT, SIGN, THIS_VERSION, Shape, check_header, shape_of
from .places import (
    BOOT,
    BUCKETS,
    BUMP,
    CHUNKS,
    ENTRIES,
    FORM,
    HAND,
    HASH_KEY,
    JOURNAL,
    LATEST,
    MAGIC,
    MUTEX,
    OFFSET,
    OPTIONS,
    PIDS,
    SIZE,
    VERSION,
)  # fmt: skip

__all__ = [
    "anonymous_file", "boot_id", "check_options", "new_offset", "open_file", "read_header",
]  # fmt: skip

ANYONE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""No child inherits the file by name, and a pipe in its place does not block."""


def check_options(path: str, mode: int, keep: bool, patience: float) -> None:
    """Errors for what no zone can be opened with; an empty path is that of a zone without one."""
    if not isinstance(path, str):
        raise TypeError(f"a zone's path is text or a Path, not {path!r}")
    if "\0" in path:
        raise ValueError(f"a path has no zero byte in it: {path!r}")
    if isinstance(mode, bool) or not isinstance(mode, int):
        raise TypeError(f"mode is a number such as 0o600, not {mode!r}")
    if not 0 <= mode <= 0o777 or mode & 0o600 != 0o600:
        raise ValueError(
            f"mode is from 0o600 to 0o777 and lets the owner read and write, not {mode:#o}"
        )
    if not isinstance(keep, bool):
        raise TypeError(f"keys is True or False, not {keep!r}")
    number = isinstance(patience, int | float) and not isinstance(patience, bool)
    if not number or not 0 < patience < math.inf:
        raise ValueError(f"patience is a number of seconds above 0, not {patience!r}")


def open_file(path: str, size: int, form: Form, mode: int, keep: bool) -> tuple[int, Shape]:
    """A descriptor of the zone at a path, made if there is none, and its shape."""
    path = os.path.realpath(path)
    for _ in range(10):  # somebody may remove it again and again
        try:
            file = os.open(path, os.O_RDWR | ANYONE)
        except FileNotFoundError:
            _make(path, shape_of(size), form, mode, keep)
            continue
        except OSError as error:
            raise StoreError(f"the zone {path} cannot be opened: {error.strerror}") from error
        try:
            return file, check_file(path, file, form.number)
        except BaseException:
            os.close(file)
            raise
    raise StoreError(f"the zone {path} is removed as fast as it is made")


def check_file(path: str, file: int, form: int | None) -> Shape:
    """The shape of the zone in a file; StoreError if there is none that can be used."""
    header, size = read_header(path, file)
    return check_header(path, header, size, form)


def read_header(path: str, file: int) -> tuple[bytes, int]:
    """The header page of a file, and the file's size."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a zone: it is not a regular file; give another path")
    return os.pread(file, HEADER, 0), status.st_size


def anonymous_file(size: int, form: Form, keep: bool) -> tuple[int, Shape]:
    """A zone without a name, for this process and those it forks."""
    shape = shape_of(size)
    try:
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("headgate-zone")
        else:
            import tempfile

            with tempfile.TemporaryFile() as temporary:
                file = os.dup(temporary.fileno())
        try:
            _fill(file, shape, form, keep)
        except BaseException:
            os.close(file)
            raise
    except OSError as error:
        raise StoreError(
            f"a zone of {shape.size} bytes cannot be made: {error.strerror}"
        ) from error
    return file, shape


def boot_id() -> tuple[int, int]:
    """What this run of the machine is known by; zeros if it is not known."""
    try:
        number = int(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""), 16)
    except (OSError, ValueError):
        return 0, 0
    return number >> 65, number & (1 << 63) - 1


def new_offset(latest: int = 0) -> int:
    """Nanoseconds from the monotonic clock to the time of day, which was `latest` or more."""
    return max(time.time_ns(), latest * 1000) - time.monotonic_ns()


def _make(path: str, shape: Shape, form: Form, mode: int, keep: bool) -> None:
    draft = f"{path}.{os.getpid()}.{secrets.token_hex(4)}.new"
    try:
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | ANYONE, mode)
        try:
            os.fchmod(file, mode)  # whatever the umask says
            _fill(file, shape, form, keep)
            os.link(draft, path)
        finally:
            os.close(file)
            os.unlink(draft)
    except FileExistsError:
        return  # somebody else was faster
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            why = "its file system has no links; one in memory, such as /dev/shm, has"
        else:
            why = error.strerror or str(error)
        raise StoreError(f"the zone {path} of {shape.size} bytes cannot be made: {why}") from error


def _fill(file: int, shape: Shape, form: Form, keep: bool) -> None:
    """Allocate the space, and write the header."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, shape.size)
    else:
        for at in range(0, shape.size, 1 << 20):
            os.pwrite(file, bytes(min(1 << 20, shape.size - at)), at)
    words = [0] * JOURNAL
    words[MAGIC], words[VERSION], words[FORM] = SIGN, THIS_VERSION, form.number
    words[SIZE], words[ENTRIES], words[BUCKETS], words[CHUNKS] = shape
    words[OPTIONS] = KEPT if keep else 0
    words[HASH_KEY], words[HASH_KEY + 1] = _random(), _random()
    words[OFFSET] = new_offset()
    words[BOOT], words[BOOT + 1] = boot_id()
    words[PIDS] = namespace()
    words[LATEST] = 0
    words[BUMP] = words[HAND] = 1
    header = bytearray(b"".join(word.to_bytes(8, sys.byteorder, signed=True) for word in words))
    header[MUTEX * 8 : MUTEX * 8 + len(form.mutex)] = form.mutex
    os.pwrite(file, header, 0)


def _random() -> int:
    return secrets.randbits(64) - (1 << 63)
