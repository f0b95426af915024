"""Scripts: Lua texts put together from files, by name, with no more kernels than are needed.

A script is a main file behind the kernels it calls. A kernel's file may say which shared parts
it `needs`, and has a line `-- more` behind what a take needs: the short script leaves the rest
out, because a call pays for every function that its script defines. Texts depend on names
alone, so every process sends the same ones.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

from .kinds import FRESH, KINDS, PARAMETERS, SPREAD

__all__ = ["Script", "script"]

MORE = "-- more\n"
REST = "-- rest\n"
"""Before it stands what most takes of a kind need; main files say where the rest goes."""
WORDS: tuple[str, ...] = ("take", "charge", "refund", "left")
SPREADS: tuple[str, ...] = ("open", "roll", "fits", "put", "view", "refund", "close")
HELD = ("held", "release", "renew")
"""What `decide` calls of a kernel of three words, of another one, and of permits beside that."""
_NEEDS = re.compile(r"^-- needs (\w+)\n", re.MULTILINE)
_EACH = re.compile(r"^ *-- each\n(.*?)^ *-- end\n", re.MULTILINE | re.DOTALL)


class Script(NamedTuple):
    """A script as the server knows it."""

    name: str
    text: str
    sha: str


@cache
def script(main: str, kinds: tuple[str, ...]) -> Script:
    """The script `main` with these kernels: `take` (one), `together` (one for each key), `decide`
    (any), `swap` (none)."""
    if main != "together":  # in which each key has the kernel in its place
        kinds = tuple(sorted(set(kinds)))
    if main == "together":
        body = _together(kinds)
    elif main == "take":
        (kind,) = kinds
        if kind == "permits":
            raise ValueError("a permit has a token, for which take has no place: use decide")
        body = _take(kind)
    elif main == "decide":
        body = _decide(kinds)
    else:
        body = _read(main)
    name = "-".join((main, *kinds))
    return Script(name, body, sha1(body.encode("ascii"), usedforsecurity=False).hexdigest())


def _take(kind: str) -> str:
    main = _read("spread" if kind in SPREAD else "take")
    parameters = PARAMETERS[kind]
    words = {
        "KIND": kind,
        "FORMAT": "<" + "d" * (2 + len(parameters)),
        "WHOLE": "<" + "d" * (6 + len(parameters)),
        "PARAMETERS": ", ".join(parameters),
        "FRESH": f"{kind}_fresh(now, {', '.join(parameters)})" if kind in FRESH else "0, 0, 0, 0",
        "OUTSIDE": "now < begin or now >= finish" if kind == "calendar" else "false",
    }
    for word, meaning in words.items():
        main = main.replace(word, meaning)
    head, main = _headed(main)
    kernel, _, rest = _bare(_read(kind)).partition(MORE)[0].partition(REST)
    return head + _included(kernel + main.replace(REST, rest))


def _together(kinds: tuple[str, ...]) -> str:
    """The takes written out one by one, in front of `decide` for all that is unusual."""
    head, main = _headed(_read("together"))
    places = list(enumerate(kinds, 1))
    numbers = {i: [f"{word}_{i}" for word in PARAMETERS[kind]] for i, kind in places}
    rules, at = [], 25
    for own in numbers.values():
        size = 17 + 8 * len(own)
        rules.append(f"ARGV[1]:sub({at}, {at + size - 1}), take")
        at += size
    words = {
        "WHOLE": "<ddd" + "".join("B" + "d" * (2 + len(own)) for own in numbers.values()),
        "NUMBERS": ", ".join(
            f"kind_{i}, tag_{i}, tick_{i}, {', '.join(own)}" for i, own in numbers.items()
        ),
        "REPLY": "<" + "i8" * (1 + 3 * len(kinds)),
        "WORDS": ", ".join(f"a_{i}, b_{i}, c_{i}" for i, _ in places),
        "RULES": ", ".join(rules),
    }
    main = _EACH.sub(
        lambda each: "".join(_placed(each[1], i, kind, numbers[i]) for i, kind in places), main
    )
    for word, meaning in words.items():
        main = main.replace(word, meaning)
    return _decide(tuple(sorted(set(kinds))), head, main)


def _placed(text: str, place: int, kind: str, numbers: list[str]) -> str:
    """What is done for each limit, for the one in this place."""
    own = ", ".join(numbers)
    fresh = f"{kind}_fresh(now_{place}, {own})" if kind in FRESH else "0, 0, 0"
    words = {"keys[_i]": f"keys[{place}]", "FRESH_i": fresh, "TAKE_i": f"{kind}_take",
             "OWN_i": own, "_i": f"_{place}"}  # fmt: skip
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def _decide(kinds: tuple[str, ...], top: str = "", before: str = "") -> str:
    """Takes come first, for the short way; all the rest is defined only where it is reached."""
    head, main = _headed(_read("decide"))
    first, rest, takes, rows = [], [], [], []
    for kind in kinds:
        number, parameters = KINDS.index(kind) + 1, len(PARAMETERS[kind])
        form = "<" + "d" * parameters
        if kind in SPREAD:
            rest.append(_bare(_read(kind)))
            names = SPREADS + HELD if kind == "permits" else SPREADS
        else:
            short, _, long = _bare(_read(kind)).partition(MORE)
            first.append(short)
            rest.append(long)
            names = (*WORDS, "fresh") if kind in FRESH else WORDS
            takes.append(_dispatch(number, kind, form))
        cells = [f"form = '{form}'", *(f"{name} = {kind}_{name}" for name in names)]
        rows.append(f"  [{number}] = {{ {', '.join(cells)} }},\n")
    low = " or ".join(f"kind == {KINDS.index(kind) + 1}" for kind in kinds if kind in FRESH)
    words = {
        # A kept bucket is one that starts low.
        "STARTS_LOW": f"(({low}) and unpack('<d', rule, 58) > 0)" if low else "false",
        "TAKES\n": "".join(takes),
        "KERNELS\n": "".join(rest) + "local KERNELS = {\n" + "".join(rows) + "}\n",
    }
    for word, meaning in words.items():
        main = main.replace(word, meaning, 1)
    return (top or head) + _included("".join(first) + before + main)


def _dispatch(number: int, kind: str, form: str) -> str:
    inside = ""
    if kind == "calendar":
        inside = " and now >= unpack('<d', rule, 26) and now < unpack('<d', rule, 34)"
    return (
        f"  if kind == {number}{inside} then\n    wait, a, b, c, lives ="
        f" {kind}_take(a, b, c, now, cost, max_wait, unpack('{form}', rule, 18))\n  end\n"
    )


def _included(text: str) -> str:
    """The text with each part that it needs in the place where it is first asked for."""
    known: set[str] = set()

    def part(match: re.Match[str]) -> str:
        name = match[1]
        if name in known:
            return ""
        known.add(name)
        return _NEEDS.sub(part, _bare(_read(name)))

    return _NEEDS.sub(part, text)


def _headed(text: str) -> tuple[str, str]:
    """The comment on top of a file, and what follows."""
    lines = text.splitlines(keepends=True)
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return "".join(lines[:end]), "".join(lines[end:])


def _bare(text: str) -> str:
    """A part without the comment on its top, except for what it needs."""
    head, rest = _headed(text)
    needs = "".join(match[0] for match in _NEEDS.finditer(head))
    return needs + rest.lstrip("\n")


@cache
def _read(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text("ascii")
