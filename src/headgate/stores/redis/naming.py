"""Names: under which key of the server a key of ours is kept.

All limits of one key share a hash tag, so in a cluster they lie in one slot and are decided by
one script; a tag of the store's own puts every key of the store into one slot.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b

from ...keys import Key, encode

__all__ = ["FORMAT", "Names"]

FORMAT = b"1"
"""The version of everything written under a name: values, scripts' replies, the names."""
_MANY = 4096


class Names:
    """The names of one store's keys."""

    def __init__(self, prefix: str = "hg", tag: str | None = None) -> None:
        for what, text in (("prefix", prefix), ("tag", tag)):
            if text is not None and (not text or "{" in text or "}" in text):
                raise ValueError(f"a {what} has at least one character and no brace, not {text!r}")
        start = prefix.encode() + FORMAT + b":"
        self.prefix = start.decode()
        """What every name begins with."""
        if tag is not None:
            start += b"{" + tag.encode() + b"}:"
        self._start = start
        self._open, self._close = (b":{", b"}") if tag is None else (b":", b"")
        self._heads: dict[tuple[str, str], bytes] = {}
        self.register = start + b"shapes"
        """The hash in which the limits are found that wrote a state, by its shape's tag."""

    def key(self, space: str, limit_id: str, key: Key) -> bytes:
        """Where the state of a key under a limit is kept."""
        head = self._heads.get((space, limit_id))
        if head is None:
            head = self._head(space, limit_id)
        name = key.encode() if type(key) is str and key.isascii() else encode(key)
        if name[:1] in (b"", b"}"):
            # An empty hash tag is none. No other key begins so: 0xFF is followed by 0 or 1.
            name = b"\xff" + name
        return head + name + self._close

    def under(self, space: str, limit_id: str) -> Callable[[Key], bytes]:
        """The same for one limit, with less to look up."""
        head, close = self.ends(space, limit_id)

        def name(key: Key) -> bytes:
            if key.__class__ is str and key and key[0] != "}":
                try:
                    return b"%b%b%b" % (head, key.encode("ascii"), close)
                except UnicodeEncodeError:
                    pass
            return self.key(space, limit_id, key)

        return name

    def ends(self, space: str, limit_id: str) -> tuple[bytes, bytes]:
        """What stands before and behind a plain key."""
        return self._head(space, limit_id), self._close

    def _head(self, space: str, limit_id: str) -> bytes:
        if len(self._heads) >= _MANY:  # limits made for each caller: made again when needed
            self._heads.clear()
        identity = space.encode("utf-8", "surrogatepass") + b"\0" + limit_id.encode()
        digest = urlsafe_b64encode(blake2b(identity, digest_size=6).digest())
        head = self._heads[space, limit_id] = self._start + digest + self._open
        return head
