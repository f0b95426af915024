"""Slots: the part of a shared file in which one worker counts; see `shared`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

__all__ = ["NOTE", "PAGE", "Slot", "size_of"]

PAGE = 4096
WORD = 8
NAME = 248
CELLS = 32
ROW = WORD + NAME + CELLS * WORD
NOTE = 16_384
SLOT_HEAD = 4 * WORD
USED, PID, NOTE_LENGTH, NOTE_NUMBER = range(4)


class Slot:
    """The rows of one worker."""

    def __init__(self, view: memoryview, most: int, number: int, *, reads: bool = False) -> None:
        self._view = view
        self._most = most
        self.number = number
        start = PAGE + number * _slot_size(most)
        self.head = view[start : start + SLOT_HEAD].cast("q")
        self._note = view[start + SLOT_HEAD : start + SLOT_HEAD + NOTE]
        self._start = start + SLOT_HEAD + NOTE
        self._idle: dict[str, list[int]] = {}
        """Rows that an earlier worker left, by name."""
        self._base: dict[int, list[int]] = {}
        if not reads:
            for place, name, cells in self._read():
                self._idle.setdefault(name, []).append(place)
                self._base[place] = cells
            self.head[PID] = os.getpid()
            self.head[NOTE_LENGTH] = 0
            self.head[NOTE_NUMBER] += self.head[NOTE_NUMBER] % 2  # killed while it wrote one

    @property
    def used(self) -> int:
        """How many rows are in use."""
        return self.head[USED]

    @property
    def pid(self) -> int:
        """Who holds it, or held it last."""
        return self.head[PID]

    def row(self, name: str) -> memoryview[int] | None:
        """The cells of a new row, or of one left over; None if the slot is full."""
        name = _cut(name)
        idle = self._idle.get(name)
        if idle:
            return self._cells(idle.pop())
        place = self.head[USED]
        if place >= self._most:
            return None
        begin, text, view = self._start + place * ROW, name.encode(), self._view
        view[begin + WORD : begin + WORD + len(text)] = text
        view[begin : begin + WORD] = len(text).to_bytes(WORD, "little")
        self.head[USED] = place + 1
        return self._cells(place)

    def _cells(self, place: int) -> memoryview[int]:
        begin = self._start + place * ROW + WORD + NAME
        return self._view[begin : begin + CELLS * WORD].cast("q")

    def _read(self) -> Iterator[tuple[int, str, list[int]]]:
        view = self._view
        for place in range(min(self.head[USED], self._most)):
            begin = self._start + place * ROW
            length = min(int.from_bytes(view[begin : begin + WORD], "little"), NAME)
            name = bytes(view[begin + WORD : begin + WORD + length]).decode("utf-8", "replace")
            yield place, name, self._cells(place).tolist()

    def rows(self) -> Iterator[tuple[str, list[int]]]:
        """Name and numbers of every row."""
        for _, name, cells in self._read():
            yield name, cells

    def counted(self) -> Iterator[tuple[str, list[int]]]:
        """The same without what earlier workers had counted."""
        for place, name, cells in self._read():
            base = self._base.get(place)
            if base is not None:
                cells = [now - then for now, then in zip(cells, base, strict=True)]
            yield name, cells

    def clear(self, name: str, *cells: int) -> None:
        """Forget numbers that an earlier worker left and that are not sums."""
        for place, found, _ in self._read():
            if found.startswith(name):
                row = self._cells(place)
                for each in cells:
                    row[each] = 0
                    if place in self._base:
                        self._base[place][each] = 0

    def write_note(self, thing: Any) -> bool:
        """Leave something for other workers to read; False if it is too long."""
        text = json.dumps(thing, separators=(",", ":")).encode()
        if len(text) > NOTE:
            return False
        self.head[NOTE_NUMBER] += 1  # odd: being written
        self._note[: len(text)] = text
        self.head[NOTE_LENGTH] = len(text)
        self.head[NOTE_NUMBER] += 1
        return True

    def read_note(self) -> Any:
        """What its worker has left; None if there is nothing, or it is being written."""
        number, length = self.head[NOTE_NUMBER], self.head[NOTE_LENGTH]
        text = bytes(self._note[: max(0, min(length, NOTE))])
        if not length or number % 2 or number != self.head[NOTE_NUMBER]:
            return None
        try:
            return json.loads(text)
        except ValueError:  # torn after all
            return None


def _slot_size(rows: int) -> int:
    return SLOT_HEAD + NOTE + rows * ROW


def size_of(slots: int, rows: int) -> int:
    """How large a file is."""
    return PAGE + slots * _slot_size(rows)


def _cut(name: str) -> str:
    """A name that fits a row, and is not the same for two."""
    text = name.encode("utf-8", "replace")
    if len(text) <= NAME:
        return text.decode()
    digest = blake2b(text, digest_size=8).hexdigest()
    return f"{text[: NAME - 20].decode('utf-8', 'ignore')}~{digest}"
