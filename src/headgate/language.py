"""The limit language: `100/minute token-bucket burst 20`, read and written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from . import calendar
from .errors import BadOption, LimitSyntaxError

if TYPE_CHECKING:
    from .limit import Limit

__all__ = ["Words", "read", "write"]

_TOKEN = re.compile(r"\S+")
_RATE = re.compile(r"(\d[\d_]*)([A-Za-z]*)/(\S+)", re.ASCII)
_AMOUNT = re.compile(r"(\d[\d_]*)([A-Za-z]*)", re.ASCII)
_NUMBER = re.compile(r"\d[\d_]*", re.ASCII)
_PERCENT = re.compile(r"(\d[\d_]*)%", re.ASCII)
_SIZES = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_SIZE_OF = {name.lower(): size for name, size in _SIZES.items()}

# What follows each word: a number, a time, a percentage, a plain word, or nothing.
_OPTIONS = {
    "burst": "size", "initial": "size", "refill": "time", "debt": "", "cells": "number",
    "queue": "size", "delay": "size", "nodelay": "", "tz": "word", "anchor": "word",
    "first-hit": "", "cold": "number", "soft": "percent", "elastic": "percent", "lease": "",
    "name": "word", "warm-up": "time",
}  # fmt: skip
_ALGORITHMS = (
    "fixed-window", "sliding-window", "sliding-log", "leaky-bucket", "token-bucket", "gcra", "even",
)  # fmt: skip


class Words(NamedTuple):
    """A text taken apart: the arguments of a Limit, and where in the text each one stood."""

    arguments: dict[str, Any]
    places: dict[str, int]

    def place(self, option: str) -> int:
        return self.places.get(option, self.places.get("algorithm", 0))


class _Reader:
    """One pass over the words of a text, which remembers where it is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = [(match.start(), match[0]) for match in _TOKEN.finditer(text)]
        self.next = 0
        self.words_read = Words({}, {})

    def error(self, problem: str, position: int | None = None) -> LimitSyntaxError:
        if position is None:
            position = self.words[self.next][0] if self.next < len(self.words) else len(self.text)
        return LimitSyntaxError(self.text, position, problem)

    def peek(self) -> str | None:
        return self.words[self.next][1] if self.next < len(self.words) else None

    def take(self, expected: str) -> tuple[int, str]:
        if self.next >= len(self.words):
            raise self.error(f"the text ends where {expected} was expected")
        self.next += 1
        return self.words[self.next - 1]

    def set(self, option: str, value: object, position: int) -> None:
        if option in self.words_read.arguments:
            raise self.error(f"{option.replace('_', '-')} is given twice", position)
        self.words_read.arguments[option] = value
        self.words_read.places[option] = position


def read(text: str) -> Words:
    """Take a limit's text apart; errors name the position and what was expected there."""
    if not isinstance(text, str):
        raise TypeError(f"a limit's text is a str, not {type(text).__name__}")
    reader = _Reader(text)
    _read_amount(reader)
    while reader.peek() is not None:
        _read_option(reader)
    return reader.words_read


def _read_amount(reader: _Reader) -> None:
    position, word = reader.take("a limit such as '100/minute' or '20 concurrent'")
    rate = _RATE.fullmatch(word)
    if rate:
        _set_amount(reader, rate[1], rate[2], position)
        place = position + rate.start(3)
        _set_window(reader, place, rate[3])
        return
    amount = _AMOUNT.fullmatch(word)
    if amount is None:
        raise reader.error(_amount_problem(word), position)
    _set_amount(reader, amount[1], amount[2], position)
    place, word = reader.take("'/', 'per' or 'concurrent'")
    if word.lower() == "concurrent":
        reader.set("algorithm", "concurrency", place)
        return
    if word.lower() == "per":
        place, word = reader.take("a time such as 'minute' or '10s'")
    elif word.startswith("/"):
        place, word = (
            (place + 1, word[1:]) if word != "/" else reader.take("a time such as 'minute'")
        )
    else:
        raise reader.error(f"expected '/', 'per' or 'concurrent', not {word!r}", place)
    _set_window(reader, place, word)


def _amount_problem(word: str) -> str:
    if re.match(r"\d+[.,]\d", word):
        return f"an amount is a whole number, not {word!r}: write 1.5/second as 3/2s"
    if word.startswith("-"):
        return f"an amount is at least 1, not {word!r}"
    return f"expected a limit such as '100/minute' or '20 concurrent', not {word!r}"


def _set_amount(reader: _Reader, digits: str, size: str, position: int) -> None:
    amount = _number(reader, digits, position)
    if size:
        amount *= _size(reader, size, position + len(digits))
        reader.set("unit", "B", position)
    reader.set("amount", amount, position)


def _set_window(reader: _Reader, position: int, word: str) -> None:
    following = reader.peek()
    if word.replace(".", "", 1).isdigit() and following is not None:  # `per 10 seconds`
        if calendar.unit(following) is None:
            raise reader.error(f"expected a unit of time such as 'seconds', not {following!r}")
        word += reader.take("a unit of time")[1]
    try:
        calendar.window(word)
    except BadOption as bad:
        raise reader.error(str(bad), position) from None
    reader.set("per", word, position)


def _read_option(reader: _Reader) -> None:
    position, word = reader.take("an option")
    name = word.lower()
    if name in _ALGORITHMS:
        reader.set("algorithm", name, position)
        return
    if name not in _OPTIONS:
        known = ", ".join(sorted((*_ALGORITHMS, *_OPTIONS)))
        raise reader.error(f"unknown word {word!r}; known are {known}", position)
    if name == "warm-up":
        reader.set("algorithm", "warm-up", position)
    option = name.replace("-", "_")
    kind = _OPTIONS[name]
    if not kind:
        reader.set(option, value=True, position=position)
        return
    expected = {
        "size": "a whole number", "number": "a whole number", "time": "a time such as '100ms'",
        "percent": "a percentage such as '10%'", "word": "a word",
    }[kind]  # fmt: skip
    place, value = reader.take(f"{expected} after {word!r}")
    reader.set(option, _value(reader, kind, value, place, expected), place)


def _value(reader: _Reader, kind: str, value: str, place: int, expected: str) -> object:
    if kind == "word":
        return value
    if kind == "time":
        try:
            calendar.duration(value, "time")
        except BadOption as bad:
            raise reader.error(str(bad), place) from None
        return value
    if kind == "size" and (match := _AMOUNT.fullmatch(value)):
        size = _size(reader, match[2], place + len(match[1])) if match[2] else 1
        return _number(reader, match[1], place) * size
    if kind == "number" and _NUMBER.fullmatch(value):
        return _number(reader, value, place)
    if kind == "percent" and (match := _PERCENT.fullmatch(value)):
        return _number(reader, match[1], place)
    raise reader.error(f"expected {expected}, not {value!r}", place)


def _number(reader: _Reader, digits: str, position: int) -> int:
    digits = digits.replace("_", "")
    if len(digits) > 16:  # beyond 2**53, and int() is slow on very long texts
        raise reader.error("a number is less than 2**53", position)
    return int(digits)


def _size(reader: _Reader, word: str, position: int) -> int:
    size = _SIZE_OF.get(word.lower())
    if size is None:
        known = ", ".join(_SIZES)
        raise reader.error(f"unknown unit {word!r}; known are {known}", position)
    return size


def write(limit: Limit) -> str:
    """The canonical text of a limit, which reads back to the same limit."""
    if limit.algorithm == "concurrency":
        words = [f"{limit.amount} concurrent"]
    else:
        words = [f"{_sized(limit.amount, limit.unit)}/{_span(limit)}"]
    if limit.algorithm == "warm-up":
        words.append(f"warm-up {_time(limit.warm_up)} cold {limit.cold}")
    elif limit.algorithm not in ("concurrency", "sliding-window"):
        words.append(limit.algorithm)
    for option in ("burst", "initial", "queue"):
        value = getattr(limit, option)
        if value is not None:
            words.append(f"{option} {_sized(value, limit.unit)}")
    if limit.cells is not None:
        words.append(f"cells {limit.cells}")
    if limit.refill:
        words.append(f"refill {_time(limit.refill)}")
    if limit.delay:
        words.append(f"delay {_sized(limit.delay, limit.unit)}")
    if limit.calendar and not (limit.calendar in ("month", "year") and limit.tz == "UTC"):
        words.append(f"tz {limit.tz}")
    if limit.anchor is not None:
        words.append(f"anchor {calendar.instant_text(limit.anchor)}")
    flags = ("debt", "nodelay", "first_hit", "lease")
    words += [flag.replace("_", "-") for flag in flags if getattr(limit, flag)]
    words += [
        f"{word} {getattr(limit, word)}%" for word in ("soft", "elastic") if getattr(limit, word)
    ]
    if limit.name is not None:
        words.append(f"name {limit.name}")
    return " ".join(words)


def _sized(amount: int, unit: str) -> str:
    if not unit:
        return str(amount)
    for name in ("TiB", "GiB", "MiB", "KiB"):
        if amount and amount % _SIZES[name] == 0:
            return f"{amount // _SIZES[name]}{name}"
    return f"{amount}B"


def _span(limit: Limit) -> str:
    if limit.calendar:
        return limit.calendar
    for name in calendar.FIXED:
        if limit.window == calendar.UNITS[name]:
            return name
    return _time(limit.window)


def _time(micros: int) -> str:
    for name in reversed(calendar.FIXED):
        count, rest = divmod(micros, calendar.UNITS[name])
        if not rest:
            return f"{count}{calendar.SHORT[name]}"
    return f"{micros // 1000}ms" if micros % 1000 == 0 else f"{micros}us"
