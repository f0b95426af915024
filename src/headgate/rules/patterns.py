"""Patterns: which paths and hosts a rule is for, read once and without regular expressions.

A path's pattern is written in segments: `/login` is itself, `*` is one segment, `{name}` is one
segment and a parameter, a last `**` is any rest or none, a last `*` is a rest of one segment or
more (`/*` is every path), a last `{name:path}` is such a rest and a parameter. Everything else is
taken as it stands, so that a framework's own pattern, such as `/users/<int:id>`, may be written:
it matches the calls whose route it is.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["Pattern", "host_of", "pattern"]


class Pattern:
    """One pattern of a path."""

    __slots__ = ("least", "names", "parts", "text")

    text: str
    """As it was written: also the route that it matches."""
    parts: tuple[str | None, ...] | None
    """Its segments, None for any one; or None if it matches no path but only a route."""
    least: int | None
    """How many further segments the rest has at least; None: there is no rest."""
    names: tuple[tuple[str, int], ...]
    """Parameters and their places; the rest lies behind the last part."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names = ()
        self.least = None
        if text in ("*", "**", "/*"):
            text = "/**"
        if not text.startswith("/"):
            self.parts = None
            return
        segments = [segment for segment in text.split("/") if segment]
        parts: list[str | None] = []
        names: list[tuple[str, int]] = []
        last = len(segments) - 1
        for place, segment in enumerate(segments):
            name, rest = _parameter(segment)
            if segment == "**" or rest:
                if place != last:
                    raise ValueError(f"{segment} stands at the end of a path, not within {text!r}")
                self.least = int(rest)
            elif segment == "*" and place == last:
                self.least = 1
            else:
                parts.append(None if name or segment == "*" else segment)
            if name:
                if any(name == other for other, _ in names):
                    raise ValueError(f"the parameter {name!r} stands twice in {text!r}")
                names.append((name, place))
        self.parts = tuple(parts)
        self.names = tuple(names)

    @property
    def literal(self) -> str | None:
        """The one path that matches, if there is only one."""
        if self.parts is None or self.least is not None:
            return None
        known = [part for part in self.parts if part is not None]
        return "/" + "/".join(known) if len(known) == len(self.parts) else None

    def matches(self, path: str) -> bool:
        """Whether a path matches; it begins with a slash and is normalised."""
        parts = self.parts
        if parts is None or path[:1] != "/":
            return False
        segments = segments_of(path, len(parts))
        extra = len(segments) - len(parts)
        if extra < (self.least or 0) or (extra and self.least is None):
            return False
        for part, segment in zip(parts, segments, strict=False):
            if not segment if part is None else part != segment:
                return False
        return True

    def parameter(self, path: str, name: str) -> str:
        """A parameter's value in a path, or "" if the path does not match or lacks it."""
        for known, place in self.names:
            if known == name and self.matches(path):
                count = len(self.parts or ())
                return segments_of(path, count)[place]
        return ""


def segments_of(path: str, most: int) -> list[str]:
    """The segments of a path; what lies beyond `most` of them stays together as one more."""
    if path == "/":
        return []
    segments = path.split("/", most + 1)
    del segments[0]
    return segments


@lru_cache(maxsize=1024)
def pattern(text: str) -> Pattern:
    """The pattern of a text; a ValueError says what is wrong with it."""
    return Pattern(text)


def host_of(text: str) -> str:
    """A host as rules compare it: in small letters, without a port or a last dot."""
    text = text.lower()
    if ":" in text:
        if text.startswith("["):
            text = text[: text.find("]") + 1] or text
        elif text.count(":") == 1:
            text = text[: text.index(":")]
    return text[:-1] if text.endswith(".") else text


def _parameter(segment: str) -> tuple[str, bool]:
    """The name in `{name}` or `{name:kind}`, and whether it takes the rest."""
    if not (segment.startswith("{") and segment.endswith("}")):
        return "", False
    name, _, kind = segment[1:-1].partition(":")
    return name, bool(name) and kind == "path"
