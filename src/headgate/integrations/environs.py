"""Environs: what the adapters of WSGI, Flask and Django share: facts of an environ, and the gate.

Django has the same words for a request that came by ASGI. Nothing is read that no rule asks for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..addresses import Trusted, client_address
from ..facts import NOTHING, Facts
from ..gate import Gate
from ..paths import normal_path
from ..rules.patterns import host_of
from .common import (
    Answer,
    CommonWords,
    Find,
    Finder,
    gate_of,
    known_of,
    refusal,
    succeeded,
    trusted_of,
)

if TYPE_CHECKING:
    from ..gate import AsyncGate, Verdict
    from ..limit import Limit
    from ..problems import Replace

__all__ = ["EnvironFacts", "EnvironGate", "EnvironHeaders", "Words", "pairs_of"]

PLAIN = ("CONTENT_TYPE", "CONTENT_LENGTH")
"""Headers that an environ has under their own names."""
UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("resource", "route", "domain", *Find._fields), ""),
    **dict.fromkeys(("params", "args", "attributes"), NOTHING),
    **dict.fromkeys(("entries", "chain"), ()),
    "priority": 0,
}
"""What stands for something that nobody has found out."""


class EnvironHeaders(Mapping[str, str]):
    """The headers of an environ by their lower-case names, read when they are asked for."""

    __slots__ = ("_environ",)

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> str:
        word = name.upper().replace("-", "_")
        value: str = self._environ[word if word in PLAIN else f"HTTP_{word}"]
        return value

    def __iter__(self) -> Iterator[str]:
        for word in self._environ:
            if word in PLAIN or word.startswith("HTTP_"):
                yield word.removeprefix("HTTP_").replace("_", "-").lower()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class EnvironFacts(Facts):
    """Facts of an environ; what is not filled in is found out when it is first read.

    request  what the functions in `find` are given
    path     where the framework has read it already
    """

    __slots__ = ("_environ", "_find", "_request")

    def __init__(
        self,
        environ: Mapping[str, Any],
        request: Any,
        find: Find,
        trusted: Trusted | None,
        path: str | None = None,
    ) -> None:
        self._environ = environ
        self._request = request
        self._find = find
        self.method = environ["REQUEST_METHOD"].upper()  # as frameworks do: `post` is no way out
        if path is None:  # whose bytes an environ has as if they were Latin-1
            text = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
            raw = text if text.isascii() else text.encode("latin-1", "replace")
            self.path = normal_path(raw, decoded=True)
        else:
            self.path = normal_path(path, decoded=True)
        self.headers = EnvironHeaders(environ)
        self.ip = client_address(environ.get("REMOTE_ADDR"), self.headers, trusted)

    def __getattr__(self, name: str) -> Any:
        if name == "host":
            environ = self._environ
            value: Any = host_of(environ.get("HTTP_HOST") or environ.get("SERVER_NAME", ""))
        elif name == "size":
            digits = self._environ.get("CONTENT_LENGTH") or ""
            known = digits.isascii() and digits.isdigit() and len(digits) < 19
            value = int(digits) if known else 0
        elif name in UNKNOWN:
            value = self._found(name)
        else:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        setattr(self, name, value)
        return value

    def _found(self, name: str) -> Any:
        finder = getattr(self._find, name, None)
        known = known_of(Find(**{name: finder}), self._request) if finder is not None else {}
        return known.get(name, UNKNOWN[name])


class Words(CommonWords, total=False):
    """What an adapter may be told by name."""

    gate: Gate | AsyncGate | None
    """A gate that exists already, in place of limits and rules."""


class EnvironGate:
    """A gate for calls that come as environs, and what is needed to ask it."""

    facts_kind: type[EnvironFacts] = EnvironFacts

    def __init__(
        self, limits: Sequence[str | Limit], kind: type[Any] = Gate, **words: Unpack[Words]
    ) -> None:
        options: dict[str, Any] = {**words}
        self.find = Find(*(options.pop(word, None) for word in Find._fields))
        self.trusted = trusted_of(options.pop("trusted", None))
        self.body: Replace | None = options.pop("body", None)
        self.failed: Finder | None = options.pop("failed", None)
        self.gate: Any = gate_of(kind, limits, **options)

    def facts(self, environ: Any, request: Any, path: str | None = None) -> EnvironFacts:
        """What is known of a call."""
        return self.facts_kind(environ, request, self.find, self.trusted, path)

    def answer(self, facts: Facts, verdict: Verdict) -> Answer:
        """The response to a refused call."""
        return refusal(self.gate, facts, verdict, facts.headers.get("accept", ""), self.body)

    def judged(self, status: int, response: Any) -> str:
        """How a call ended, by its response."""
        if self.failed is None:
            return succeeded(status)
        try:
            return "failure" if self.failed(response) else "success"
        except Exception:
            logging.getLogger("headgate").exception("failed= could not judge a response")
            return "failure"


def pairs_of(verdict: Verdict) -> list[tuple[str, str]]:
    """The headers of a verdict; none if they cannot be written."""
    try:
        return verdict.headers()
    except Exception:  # a response without them is better than none
        return []
