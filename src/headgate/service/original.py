"""Original: the request that a gateway asks about, as far as its headers tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, unquote_to_bytes

from ..addresses import Trusted, client_address
from ..facts import Facts
from ..paths import normal_path
from ..rules.patterns import host_of
from .faults import Fault

__all__ = ["Known", "facts_from_nginx", "facts_from_traefik", "headers_of", "known_by", "path_of"]

Known = tuple[tuple[str, str], ...]
"""What is known of a caller, and the header that says it: ("user", "x-user")."""

WORDS = ("user", "device", "api_key", "origin")
ATTRIBUTE = "attribute."


def facts_from_nginx(
    headers: Mapping[str, str], trusted: Trusted | None = None, known: Known = ()
) -> Facts:
    """What nginx says of a request, by headers that its configuration sets; names in lower case.

    A Kubernetes ingress says X-Original-URL, with scheme and host, in place of X-Original-URI.
    """
    uri = headers.get("x-original-uri")
    if uri is None:
        url = headers.get("x-original-url")
        if url is None:
            raise _missing("X-Original-URI", "proxy_set_header X-Original-URI $request_uri;")
        uri = "/" + url.partition("://")[2].partition("/")[2]
    method = headers.get("x-original-method")
    if not method:
        raise _missing("X-Original-Method", "proxy_set_header X-Original-Method $request_method;")
    if not headers.get("x-forwarded-for"):
        raise _missing("X-Forwarded-For", "proxy_set_header X-Forwarded-For $remote_addr;")
    return _facts(method, uri, headers, trusted, known)


def facts_from_traefik(
    headers: Mapping[str, str], trusted: Trusted | None = None, known: Known = ()
) -> Facts:
    """What Traefik's ForwardAuth says of a request; names in lower case."""
    for name in ("X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-For"):
        if not headers.get(name.lower()):
            raise _missing(name, "")
    method, uri = headers["x-forwarded-method"], headers["x-forwarded-uri"]
    return _facts(method, uri, headers, trusted, known)


def _missing(name: str, line: str) -> Fault:
    write = f"; nginx sends it by: {line}" if line else ""
    return Fault(400, f"the gateway does not send {name}{write}", field=name)


def _facts(
    method: str, uri: str, headers: Mapping[str, str], trusted: Trusted | None, known: Known
) -> Facts:
    facts = Facts(
        method=method.upper(),
        path=path_of(uri),
        host=host_of(headers.get("x-forwarded-host") or headers.get("host", "")),
        headers=headers,
        ip=_address(headers, trusted),
        size=_size(headers.get("x-original-content-length", "")),
    )
    attributes = {}
    for word, name in known:
        value = headers.get(name)
        if value and word.startswith(ATTRIBUTE):
            attributes[word.removeprefix(ATTRIBUTE)] = value
        elif value:
            setattr(facts, word, value)
    if attributes:
        facts.attributes = attributes
    return facts


def path_of(uri: str) -> str:
    """The path of a request as it was sent, read as the server behind will read it.

    Those decode it first, so `%2F` is a slash here, as for the adapters; and what nginx says
    may have a fragment, which is no part of the path it goes by.
    """
    raw = uri.partition("?")[0].partition("#")[0]
    if "%" not in raw and raw.isascii():
        return normal_path(raw, decoded=True)
    return normal_path(unquote_to_bytes(raw.encode("latin-1", "replace")), decoded=True)


def _address(headers: Mapping[str, str], trusted: Trusted | None) -> str:
    """Who called the gateway: it wrote the last entry; the others are only as good as `trusted`."""
    rest, _, near = headers["x-forwarded-for"].rpartition(",")
    near = near.strip(" \t")
    told = {"x-forwarded-for": rest}
    if trusted is not None and trusted.header not in ("", "x-forwarded-for"):
        told[trusted.header] = headers.get(trusted.header, "")
    return client_address(None if near.startswith("unix") else near, told, trusted)


def _size(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


@lru_cache(maxsize=64)
def known_by(query: bytes) -> Known:
    """What the address that the gateway calls says about headers: `?user=X-User`.

    A client can send any header, so none is believed to say who it is until it is named here.
    """
    found = []
    for word, name in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        attribute = word.startswith(ATTRIBUTE) and len(word) > len(ATTRIBUTE)
        if (word not in WORDS and not attribute) or not name:
            words = ", ".join((*WORDS, f"{ATTRIBUTE}NAME"))
            problem = f"the address says {word}={name}; known are {words}, each =HEADER"
            raise Fault(400, problem, field=word)
        found.append((word, name.lower()))
    return tuple(found)


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; several of one name are joined."""
    found: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found
