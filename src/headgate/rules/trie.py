"""Trie: patterns of paths filed by their segments, so that a path meets only its own."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Trie"]

T = TypeVar("T")


class Node(Generic[T]):
    """Where the patterns with one beginning go on."""

    __slots__ = ("any", "children", "here", "more", "rest")

    def __init__(self) -> None:
        self.children: dict[str, Node[T]] | None = None
        self.any: Node[T] | None = None
        self.here: T | None = None
        """What ends here; `rest`: or later; `more`: later by a segment or more."""
        self.rest: T | None = None
        self.more: T | None = None


class Trie(Generic[T]):
    """Patterns that are not just one path, and what is filed under each."""

    __slots__ = ("_depth", "_root")

    def __init__(self) -> None:
        self._root: Node[T] = Node()
        self._depth = 0

    def add(self, parts: tuple[str | None, ...], least: int | None, leaf: T) -> None:
        """File a leaf under a pattern's parts and rest: once for each pair."""
        node = self._root
        for part in parts:
            if part is None:
                if node.any is None:
                    node.any = Node()
                node = node.any
            else:
                if node.children is None:
                    node.children = {}
                node = node.children.setdefault(part, Node())
        self._depth = max(self._depth, len(parts))
        if least is None:
            node.here = leaf
        elif least:
            node.more = leaf
        else:
            node.rest = leaf

    def find(self, path: str) -> list[T]:
        """The leaves of all patterns that match a path."""
        leaves: list[T] = []
        if path[:1] != "/":
            return leaves
        segments = path.split("/", self._depth + 1)
        count = 1 if path == "/" else len(segments)
        node: Node[T] | None = self._root
        at = 1
        others: list[tuple[Node[T], int]] | None = None
        while True:
            if node is None:
                if not others:
                    return leaves
                node, at = others.pop()
            if node.rest is not None:
                leaves.append(node.rest)
            if at == count:
                if node.here is not None:
                    leaves.append(node.here)
                node = None
                continue
            if node.more is not None:
                leaves.append(node.more)
            segment = segments[at]
            at += 1
            either = node.any
            node = node.children.get(segment) if node.children is not None else None
            if either is not None and segment:
                if node is None:
                    node = either
                else:
                    if others is None:
                        others = []
                    others.append((either, at))
