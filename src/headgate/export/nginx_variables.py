"""Variables of nginx: what a rule asks of a call, as `map` and `geo`.

A condition is a variable that is 1 or 0, and conditions that ask the same share it. Texts of a
map are compared without regard to case, so what has a case is a regular expression. A zone does
not count a request whose key is empty: that is how a rule is for some requests only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from ..rules.model import KeyPart, Lists, Match
from ..rules.patterns import Pattern, host_of, pattern
from .nginx_limits import Cannot

__all__ = ["Condition", "Variables", "quoted"]

Condition = tuple[str, bool]
"""A variable, and whether it is to be 1."""
VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
HEADER = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
HOST = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]", re.ASCII)
METHOD = re.compile(r"[A-Z_-]+", re.ASCII)
ALWAYS = ("ip", "method", "path")
"""Parts of a key that every request has."""
ANY_LINE = ("path", "param", "user", "device", "api_key", "origin")
"""Parts of a key that may hold a line break, by which parts are told apart."""
FOREIGN = "nginx does not know the {}"
KNOWABLE = ("user", "device", "api_key", "origin")


def quoted(text: str) -> str:
    """A text in the quotes of nginx."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def literal(text: str, encoding: str = "utf-8") -> str:
    """A text within a regular expression, which compares bytes."""
    found = []
    for letter in text:
        if letter.isascii() and letter.isalnum():
            found.append(letter)
        elif letter.isascii() and letter.isprintable():
            found.append(f"\\{letter}")
        else:
            try:
                raw = letter.encode(encoding)
            except UnicodeEncodeError:
                raise Cannot(f"nginx compares bytes, and {text!r} has none") from None
            found += [f"\\x{byte:02x}" for byte in raw]
    return "".join(found)


class Variables:
    """All variables of a configuration, made as they are asked for.

    prefix  what their names begin with
    known   variables that tell what nginx does not know by itself: {"user": "$remote_user"}
    """

    def __init__(self, prefix: str, known: Mapping[str, str]) -> None:
        for word, variable in known.items():
            if word not in KNOWABLE or not VARIABLE.fullmatch(variable):
                words = ", ".join(KNOWABLE)
                raise ValueError(
                    f"what is known is written as user=$remote_user (or {words}), "
                    f"not {word}={variable}"
                )
        self._prefix = prefix
        self._known = dict(known)
        self._made: dict[tuple[str, ...], str] = {}
        self.blocks: list[str] = []

    def forget(self, count: int) -> None:
        """Undo what was made after the first so many."""
        del self.blocks[count:]
        self._made = dict(list(self._made.items())[:count])

    def map(self, source: str, entries: Iterable[tuple[str, str]], label: str) -> str:
        """A variable with a value for each of some values of another."""
        return self._block("map", f"{source} ", entries, label)

    def _block(self, word: str, source: str, entries: Iterable[tuple[str, str]], label: str) -> str:
        lines = [f"    {value} {result};" for value, result in entries]
        form = (word, source, *lines)
        if form not in self._made:
            name = f"${self._prefix}_{label}"
            if name in self._made.values():
                name = f"{name}_{len(self._made)}"
            self._made[form] = name
            self.blocks.append("\n".join([f"{word} {source}{name} {{", *lines, "}"]))
        return self._made[form]

    def either(self, source: str, patterns: Sequence[str], label: str) -> str:
        """1 if a variable matches one of some regular expressions, each as far as it says."""
        entries = [(quoted(f"~{each}"), "1") for each in patterns]
        return self.map(source, [("default", "0"), *entries], label)

    # -- matches

    def conditions(self, match: Match) -> list[Condition]:
        """What a match asks for; nothing if it is for every request."""
        if match.resources or match.entries or match.through:
            raise Cannot("it is for calls that are not requests of HTTP")
        if match.attributes:
            raise Cannot(FOREIGN.format("attributes of a user"))
        found = []
        if match.methods:
            methods = _checked(sorted(match.methods), METHOD, "method")
            entries = [(quoted(method), "1") for method in methods]
            found.append(self.map("$request_method", [("default", "0"), *entries], "method"))
        if match.hosts and "*" not in match.hosts:
            hosts = _checked([host_of(host) for host in match.hosts], HOST, "host")
            entries = [(quoted(host), "1") for host in hosts]
            found.append(self.map("$host", [("hostnames;\n    default", "0"), *entries], "host"))
        if match.paths:
            regexes = [regex_of(pattern(path)) for path in match.paths]
            if "" not in regexes:
                found.append(self.either("$uri", regexes, "path"))
        for name, values in match.headers.items():
            found.append(self._valued(header_variable(name), values, "header"))
        if match.origins:
            found.append(self._valued(self._knows("origin"), match.origins, "origin"))
        return [(variable, True) for variable in found]

    def _valued(self, source: str, values: Sequence[str], label: str) -> str:
        if "*" in values:
            return self.there(source)
        patterns = [f"^{literal(value, 'latin-1')}\\z" for value in values]  # as headers are read
        return self.either(source, patterns, label)

    def there(self, source: str) -> str:
        """1 if a variable is not empty."""
        return self.map(source, [("default", "1"), ('""', "0")], "has")

    def listed(self, lists: Lists) -> list[str]:
        """Variables of which one is 1 if a call is on the lists."""
        found = []
        if lists.networks:
            networks = dict.fromkeys(map(network_of, lists.networks))
            entries = [("default", "0"), *((network, "1") for network in networks)]
            found.append(self._block("geo", "", entries, "network"))
        for word, values in (("user", lists.users), ("origin", lists.origins)):
            if values:
                found.append(self._valued(self._knows(word), values, word))
        return found

    # -- keys

    def key(self, parts: Sequence[KeyPart], paths: Sequence[str]) -> tuple[str, list[Condition]]:
        """A key as nginx writes it, and the parts that must be there."""
        if not parts:
            return "all", []
        if len(parts) == 1:
            return self._part(parts[0], paths), []
        # A line break tells parts apart; so the one that may hold one comes last, but for the
        # address, whose length its last byte tells.
        if sum(part.source in ANY_LINE for part in parts) > 1:
            raise Cannot("nginx could not tell the parts of such a key apart")
        order = sorted(parts, key=lambda part: (part.source == "ip", part.source in ANY_LINE))
        texts = [self._part(part, paths) for part in order]
        there = [
            (self.there(text), True)
            for part, text in zip(order, texts, strict=True)
            if part.source not in ALWAYS
        ]
        if order[-1].source == "ip":
            net = texts[-1]
            family = [("default", "6"), (quoted(r"~^(?s:.{4})\z"), "4")]
            texts[-1] += self.map(net, family, "family")
        return "\n".join(texts), there

    def _part(self, part: KeyPart, paths: Sequence[str]) -> str:
        source = part.source
        if source == "ip":
            return self.net()
        if source == "host":
            return "$host"
        if source == "method":
            return "$request_method"
        if source == "header":
            return header_variable(part.name)
        if source == "path":
            entries = [("default", "$uri"), (quoted(r"~^(?s)(.+?)/+\z"), "$1")]
            return self.map("$uri", entries, "whole_path")
        if source in ("route", "param"):
            return self._of_pattern(part, [pattern(path) for path in paths])
        if source in KNOWABLE:
            return self._knows(source)
        raise Cannot(FOREIGN.format(f"{source} {part.name!r}" if part.name else source))

    def net(self) -> str:
        """What an address is counted by: itself, or of IPv6 the first 64 bits."""
        entries = [
            ("default", "$binary_remote_addr"),
            (quoted(r"~^(?s)\x00{10}\xff\xff(.{4})\z"), "$1"),
            (quoted(r"~^(?s)(.{8}).{8}\z"), "$1"),
        ]
        return self.map("$binary_remote_addr", entries, "net")

    def _of_pattern(self, part: KeyPart, patterns: Sequence[Pattern]) -> str:
        """A parameter in the path, or the pattern itself."""
        entries = [("default", '""')]
        for each in patterns:
            place = dict(each.names).get(part.name, -1)
            if part.source == "param":
                if place < 0:
                    continue
                entries.append((quoted(f"~{regex_of(each, place)}"), "$1"))
            elif "$" in each.text:
                raise Cannot("nginx cannot write the '$' of a route")
            else:
                entries.append((quoted(f"~{regex_of(each)}"), quoted(each.text)))
        if len(entries) == 1:
            raise Cannot(FOREIGN.format(f"{part.source} {part.name!r}".strip()))
        return self.map("$uri", entries, part.source)

    def _knows(self, word: str) -> str:
        if word not in self._known:
            raise Cannot(FOREIGN.format(f"{word} (tell it: --known {word}=$variable)"))
        return self._known[word]


def network_of(text: str) -> str:
    """A network as nginx compares it: version 4 addresses within version 6 are version 4."""
    network = ip_network(text, strict=False)
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return str(IPv4Network((int(mapped), network.prefixlen - 96)))
    return str(network)


def _checked(texts: Iterable[str], form: re.Pattern[str], word: str) -> list[str]:
    found = list(dict.fromkeys(texts))
    for text in found:
        if not form.fullmatch(text):
            raise Cannot(f"nginx has no {word} {text!r}")
    return found


def header_variable(name: str) -> str:
    """The variable of a header of the request."""
    if not HEADER.fullmatch(name):
        raise Cannot(f"nginx has no variable for the header {name!r}")
    return f"$http_{name.lower().replace('-', '_')}"


def regex_of(each: Pattern, place: int = -1) -> str:
    """A regular expression for the paths of a pattern; "" if it is all of them.

    `place` says which segment is captured. `$uri` is decoded, and may end in a slash.
    """
    if each.parts is None:
        raise Cannot(f"nginx does not know the route {each.text!r} of a framework")
    if not each.parts and each.least == 0:
        return ""
    text = "^"
    for number, part in enumerate(each.parts):
        if part is not None and "%" in part:
            raise Cannot(f"nginx compares decoded paths, and {part!r} is encoded")
        segment = "[^/]+" if part is None else literal(part)
        text += "/+" + (f"({segment})" if number == place else segment)
    if each.least is None:
        return text + r"/*\z"
    if place == len(each.parts):
        return text + r"/+(?s)(.+?)/*\z"
    return text + (r"(?:/|\z)" if each.least == 0 else "/+[^/]")
