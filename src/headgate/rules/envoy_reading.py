"""The text of an Envoy ratelimit configuration, as values with their lines.

Read node by node, so that a value stays the text that was written (`1.10`, `404`, `no`), and
every error knows its line. Anchors and merges are understood, within bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import RulesError
from .lines import DEPTH, SIZE

__all__ = ["Descriptor", "RateLimit", "read_document"]

NODES = 200_000  # a few lines of anchors can mean gigabytes
UNITS = ("second", "minute", "hour", "day", "week", "month", "year")
MOST = 2**32 - 1
_ROOT = ("domain", "descriptors")
_DESCRIPTOR = (
    "key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric",
    "value_to_metric", "share_threshold",
)  # fmt: skip
_LIMIT = ("unit", "requests_per_unit", "unlimited", "name", "replaces")
_TRUE = ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y")
_FALSE = ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N", "")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A `rate_limit` block."""

    unit: str
    requests_per_unit: int
    unlimited: bool
    name: str
    replaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One descriptor of the file, with those that lie in it."""

    key: str
    value: str
    limit: RateLimit | None
    descriptors: tuple[Descriptor, ...]
    shadow_mode: bool
    quota_mode: bool
    """Counted, but never refused."""
    detailed_metric: bool
    value_to_metric: bool
    share_threshold: bool
    line: int


def read_document(text: str, file: str) -> tuple[str, tuple[Descriptor, ...]]:
    """The domain and the descriptors of a file, or a RulesError that names the place."""
    return _Reader(file).read(text)


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.count = 0

    def error(self, problem: str, node: Any = None) -> RulesError:
        line = node.start_mark.line + 1 if node is not None else 0
        return RulesError(problem, self.file, line)

    def read(self, text: str) -> tuple[str, tuple[Descriptor, ...]]:
        root = self._composed(text)
        if root is None:
            raise self.error("the file is empty; it has a domain and descriptors")
        fields = self._fields(root, _ROOT, 0)
        domain = self._text(fields.get("domain"))
        if not domain:
            raise self.error("the domain is missing or empty", fields.get("domain", root))
        return domain, self._descriptors(fields.get("descriptors"), 1)

    def _composed(self, text: str) -> Any:
        if len(text) > SIZE:
            raise self.error(f"the file is larger than {SIZE:,} characters")
        try:
            import yaml
        except ImportError:
            raise self.error("YAML needs PyYAML: pip install 'headgate[rules]'") from None
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            depth = 0
            for event in yaml.parse(text, Loader=loader):
                # Before nodes are made: that is done by recursion, in C without a bound.
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                if depth > 2 * DEPTH:
                    raise self.error("the file is nested too deep", event)
            return yaml.compose(text, Loader=loader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark is not None else 0
            problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
            raise RulesError(f"this is not YAML: {problem}", self.file, line) from None
        except UnicodeError as error:
            raise self.error(f"this is not YAML: {error}") from None

    def _fields(self, node: Any, known: tuple[str, ...], depth: int) -> dict[str, Any]:
        """The fields of a table; those it merges in (`<<`) stand behind its own."""
        self._bounded(node, depth)
        if node.id != "mapping":
            raise self.error(f"a table is expected here, with {', '.join(known)}", node)
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for other in value.value if value.id == "sequence" else [value]:
                    for name, field in self._fields(other, known, depth + 1).items():
                        merged.setdefault(name, field)
                continue
            name = key.value if key.id == "scalar" else ""
            if name not in known:
                near = get_close_matches(str(name), known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                raise self.error(f"unknown key {str(name)[:80]!r}; {hint}", key)
            if name in own:
                raise self.error(f"{name} is there twice", key)
            own[name] = value
        return {**merged, **own}

    def _bounded(self, node: Any, depth: int) -> None:
        self.count += 1
        if self.count > NODES or depth > DEPTH:
            raise self.error("the file holds too much, or too deep", node)

    def _items(self, node: Any, what: str, depth: int) -> list[Any]:
        if node is None or (node.id == "scalar" and not self._text(node)):
            return []
        self._bounded(node, depth)
        if node.id != "sequence":
            raise self.error(f"{what} is a list", node)
        return list(node.value)

    def _text(self, node: Any) -> str:
        if node is None:
            return ""
        if node.id != "scalar":
            raise self.error("a text is expected here", node)
        if node.tag == "tag:yaml.org,2002:null":
            return ""
        return str(node.value)

    def _flag(self, node: Any) -> bool:
        text = self._text(node)
        if text not in _TRUE and text not in _FALSE:
            raise self.error(f"true or false is expected here, not {text[:80]!r}", node)
        return text in _TRUE

    def _descriptors(self, node: Any, depth: int) -> tuple[Descriptor, ...]:
        return tuple(
            self._descriptor(item, depth + 1) for item in self._items(node, "descriptors", depth)
        )

    def _descriptor(self, node: Any, depth: int) -> Descriptor:
        fields = self._fields(node, _DESCRIPTOR, depth)
        key, value = self._text(fields.get("key")), self._text(fields.get("value"))
        if not key:
            raise self.error("a descriptor has a key", fields.get("key", node))
        block = fields.get("rate_limit")
        empty = block is not None and block.id == "scalar" and not self._text(block)
        share = self._flag(fields.get("share_threshold"))
        if share and not value.endswith("*"):
            raise self.error(
                "share_threshold needs a value that ends in *", fields["share_threshold"]
            )
        return Descriptor(
            key,
            value,
            None if block is None or empty else self._limit(block, depth + 1),
            self._descriptors(fields.get("descriptors"), depth + 1),
            self._flag(fields.get("shadow_mode")),
            self._flag(fields.get("quota_mode")),
            self._flag(fields.get("detailed_metric")),
            self._flag(fields.get("value_to_metric")),
            share,
            node.start_mark.line + 1,
        )

    def _limit(self, node: Any, depth: int) -> RateLimit:
        fields = self._fields(node, _LIMIT, depth)
        unit = self._text(fields.get("unit")).lower()
        unlimited = self._flag(fields.get("unlimited"))
        if unlimited and unit in UNITS:
            raise self.error("what is unlimited has no unit", fields["unit"])
        if not unlimited and unit not in UNITS:
            raise self.error(
                f"a unit is one of {', '.join(UNITS)}, not {unit[:80]!r}", fields.get("unit", node)
            )
        number = self._text(fields.get("requests_per_unit")).replace("_", "") or "0"  # 1_000
        plain = number.isascii() and number.isdigit() and len(number) <= 10
        if not plain or int(number) > MOST:
            raise self.error(
                f"requests_per_unit is a whole number from 0 to {MOST}, not {number[:80]!r}",
                fields["requests_per_unit"],
            )
        name = self._text(fields.get("name"))
        replaces = []
        for item in self._items(fields.get("replaces"), "replaces", depth):
            replaced = self._text(self._fields(item, ("name",), depth + 1).get("name"))
            if not replaced:
                raise self.error("what is replaced has a name", item)
            if replaced == name:
                raise self.error(f"{name!r} cannot replace itself", item)
            replaces.append(replaced)
        return RateLimit(unit, int(number), unlimited, name, tuple(replaces))
