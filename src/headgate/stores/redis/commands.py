"""Commands: a client's least, over the connections of a store, for what is no limit."""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Any

from .link import Call, Command, Flow
from .scripts import Script

if TYPE_CHECKING:
    from .store import RedisStore

__all__ = ["Commands"]

PATIENCE = 1.0
"""Seconds for one command: nobody's call waits for it."""


class Commands:
    """Sends commands and scripts from a thread; its one method is named as redis-py names it.

    A script is sent once, and then called by its digest.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.prefix = store.plan.names.prefix
        """What the names of all keys begin with that the store's user may touch."""

    def execute_command(self, *words: Any) -> Any:
        """Send a command, and return its reply; a RedisStore's errors are raised."""
        sent = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        call: Call | Command
        if words[0] == "EVAL":
            text, keys = str(words[1]), int(words[2])
            sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
            script = Script("command", text, sha)
            call = Call(script, sent[3 : 3 + keys], sent[3 + keys :])
        else:
            call = Command(sent, sent[1])

        def flow() -> Flow[Any]:
            (reply,) = yield [call]
            return reply

        self._store._check()
        reply = self._store.link.run(flow(), PATIENCE)
        if isinstance(reply, Exception):
            raise reply
        return reply
