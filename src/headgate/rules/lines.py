"""Lines: the values of a text, each with the line it stands on, within bounds."""

from __future__ import annotations

from typing import Any

from ..errors import RulesError

__all__ = ["DEPTH", "NODES", "SIZE", "Growing", "Node", "shown"]

SIZE = 4 * 2**20
"""Bytes that a text may have."""
DEPTH = 32
"""How deep lists and tables may lie in each other."""
NODES = 1_000_000
"""How many values a text may hold."""


class Node:
    """A value and its line: for what a table holds, the line of its key."""

    __slots__ = ("line", "value")

    def __init__(self, value: Any, line: int) -> None:
        self.value = value
        """A text, a number, true, false, nothing, a list of nodes, or a dict of them by name."""
        self.line = line

    def plain(self) -> Any:
        """The value without its lines; depth is bounded where nodes are made."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def __repr__(self) -> str:
        return f"Node({self.value!r}, line {self.line})"


class Growing:
    """Nodes put together one after the other, without recursion: whoever reads feeds this."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.most = NODES
        self.root: Node | None = None
        self.count = 0
        self._open: list[Node] = []
        self._keys: list[tuple[str, int] | None] = []

    @property
    def wants_key(self) -> bool:
        """Whether the next thing must be a name."""
        return bool(self._open) and isinstance(self._open[-1].value, dict) and not self._keys[-1]

    @property
    def inside(self) -> type | None:
        """dict or list, whichever is open; None outside of both."""
        return type(self._open[-1].value) if self._open else None

    def error(self, problem: str, line: int) -> RulesError:
        return RulesError(problem, self.file, line)

    def key(self, name: str, line: int) -> None:
        """A name in the table that is open."""
        before = self._open[-1].value.get(name)
        if before is not None:
            raise self.error(f"{shown(name)} is there twice; first on line {before.line}", line)
        self._keys[-1] = (name, line)

    def put(self, value: Any, line: int) -> Node:
        """A value where it belongs."""
        self.count += 1
        if self.count > self.most:
            raise self.error(f"more than {self.most:,} values", line)
        node = Node(value, line)
        if not self._open:
            self.root = node
            return node
        holder = self._open[-1].value
        if isinstance(holder, list):
            holder.append(node)
        else:
            key = self._keys[-1]
            assert key is not None
            name, node.line = key
            holder[name] = node
            self._keys[-1] = None
        return node

    def begin(self, holder: dict[str, Node] | list[Node], line: int) -> None:
        """A list or a table begins."""
        if len(self._open) >= DEPTH:
            raise self.error(f"lists and tables lie more than {DEPTH} deep in each other", line)
        self._open.append(self.put(holder, line))
        self._keys.append(None)

    def end(self) -> None:
        """It ends."""
        self._open.pop()
        self._keys.pop()


def shown(value: object) -> str:
    """A value as an error shows it: in quotes if a text, and not too long."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value) if len(value) <= 80 else repr(value[:77]) + "..."
    if isinstance(value, int | float):
        return str(value)
    return f"a {type(value).__name__}"
