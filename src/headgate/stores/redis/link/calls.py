"""Calls: what travels to a server, and the bytes it travels as.

A flow is a generator: it yields a list of calls, is sent the list of their replies (an exception
stands for a call that failed), and returns its result. It does no I/O, so one flow serves the
sync link and the async one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

__all__ = [
    "AnyCall",
    "Call",
    "Command",
    "Flow",
    "Raw",
    "Script",
    "packed",
    "prepared",
    "script_of",
    "slot_key_of",
    "spelt",
    "unpacked",
]

T = TypeVar("T")


class Script(Protocol):
    """A script by its name, its text, and the SHA1 of the text in hex."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def sha(self) -> str: ...


class Call(NamedTuple):
    """One EVALSHA; in a cluster its keys share one slot."""

    script: Script
    keys: Sequence[bytes]
    args: Sequence[bytes] = ()


class Command(NamedTuple):
    """One plain command; `slot_key` says where it goes in a cluster (None: to any master)."""

    words: Sequence[bytes]
    slot_key: bytes | None = None


class Raw(NamedTuple):
    """A call that is packed already."""

    data: bytes
    slot_key: bytes | None = None


AnyCall: TypeAlias = Call | Command | Raw
Flow: TypeAlias = Generator[Sequence[AnyCall], list[Any], T]

# Scripts that were ever packed, by sha: a server that has lost one is told its text again.
_seen: dict[bytes, Script] = {}
_heads: dict[tuple[str, int], bytes] = {}


def packed(call: AnyCall) -> bytes:
    """The bytes of a call in the server's protocol."""
    if call.__class__ is Call:
        keys = call.keys
        words = [*keys, *call.args]
        head = _heads.get((call.script.sha, len(keys))) or _head(call.script, len(keys))
        # Joined rather than grown: a call of many keys is packed in one pass.
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        return b"*%d\r\n%b%b" % (len(words) + 3, head, b"".join(parts))
    if call.__class__ is Command:
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in call.words]
        return b"*%d\r\n%b" % (len(parts), b"".join(parts))
    return call.data  # type: ignore[union-attr]  # the third of three


def prepared(script: Script, args: Sequence[bytes], keys: int = 1) -> Callable[..., bytes]:
    """A function from keys to the packed call of a script whose arguments stay the same."""
    start = b"*%d\r\n%b$" % (len(args) + 3 + keys, _head(script, keys))
    end = b"".join([b"\r\n", *(b"$%d\r\n%b\r\n" % (len(word), word) for word in args)])

    def pack(key: bytes) -> bytes:
        return b"%b%d\r\n%b%b" % (start, len(key), key, end)

    def pack_all(*names: bytes) -> bytes:
        words = [b"%d\r\n%b" % (len(name), name) for name in names]
        return b"%b%b%b" % (start, b"\r\n$".join(words), end)

    return pack if keys == 1 else pack_all


def spelt(
    script: Script, args: Sequence[bytes], ends: Sequence[tuple[bytes, bytes]]
) -> Callable[[bytes], bytes]:
    """A function to the packed call of a script from that which its keys have in common.

    Each key is that between two ends; those of all keys are as long as those of the first.
    """
    count, size = len(ends), sum(map(len, ends[0]))
    start = b"*%d\r\n%b" % (len(args) + 3 + count, _head(script, count))
    words = [b"$%%d\r\n%b%%b%b\r\n" % (_plain(begin), _plain(end)) for begin, end in ends]
    last = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in args)
    form = _plain(start) + b"".join(words) + _plain(last)

    def pack(key: bytes) -> bytes:
        return form % ((size + len(key), key) * count)

    return pack


def _plain(text: bytes) -> bytes:
    """A text as a form writes it."""
    return text.replace(b"%", b"%%")


def _head(script: Script, keys: int) -> bytes:
    """EVALSHA, the sha and the number of keys; the script is remembered."""
    sha = script.sha.encode()
    _seen[sha] = script
    count = b"%d" % keys
    head = b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n$%d\r\n%b\r\n" % (sha, len(count), count)
    _heads[script.sha, keys] = head
    return head


def script_of(call: AnyCall) -> Script | None:
    """The script that a call runs."""
    if isinstance(call, Call):
        return call.script
    if isinstance(call, Raw):
        start = call.data.find(b"EVALSHA\r\n$40\r\n", 0, 24)
        return _seen.get(call.data[start + 14 : start + 54]) if start >= 0 else None
    return None


def unpacked(raw: Raw) -> Call | None:
    """A packed call of a known script, taken apart again; None for anything else."""
    script = script_of(raw)
    if script is None:
        return None
    data, at = raw.data, raw.data.index(b"\n") + 1
    words = []
    while at < len(data):
        end = data.index(b"\r\n", at)
        size = int(data[at + 1 : end])
        words.append(data[end + 2 : end + 2 + size])
        at = end + size + 4
    keys = int(words[2])
    return Call(script, words[3 : 3 + keys], words[3 + keys :])


def slot_key_of(call: AnyCall) -> bytes | None:
    """The key that says to which node of a cluster a call goes."""
    if isinstance(call, Call):
        return call.keys[0] if call.keys else None
    return call.slot_key
