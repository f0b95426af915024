"""Checks of single texts in a rules file: each returns the text as it is kept, or says why not."""

from __future__ import annotations

import re
from ipaddress import ip_network

from ..limit import Limit
from ..paths import normal_path
from .lines import shown
from .patterns import pattern

__all__ = [
    "attribute_name", "function", "header_name", "host", "method", "network", "path", "redirect",
    "rule_name", "size",
]  # fmt: skip

RULE = r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}"
TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
FUNCTION = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_.]*"
_RULE, _TOKEN, _FUNCTION = (re.compile(text, re.ASCII) for text in (RULE, TOKEN, FUNCTION))
_PARAMETER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_-]*(?::[^{}]+)?\}", re.ASCII)
_HOST = re.compile(r"(?:\*\.)?[^\s*/?#@]+|\*")
_SIZE = re.compile(r"[0-9]{1,15}[A-Za-z]*", re.ASCII)


def rule_name(text: str) -> str:
    """It becomes part of keys, headers and metrics, so it is kept plain."""
    if not _RULE.fullmatch(text):
        raise ValueError(
            "a name is up to 100 letters, digits and . _ : / @ + -, such as login-ip, "
            f"not {shown(text)}"
        )
    return text


def method(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"a method is a word such as POST, not {shown(text)}")
    return text.upper()


def header_name(text: str) -> str:
    if not _TOKEN.fullmatch(text) or len(text) > 200:
        raise ValueError(f"a header is a name such as X-Tenant, not {shown(text)}")
    return text.lower()


def attribute_name(text: str) -> str:
    if not text or len(text) > 200 or not text.isprintable():
        raise ValueError(f"a name has 1 to 200 characters, not {shown(text)}")
    return text


def host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError(f"a host is such as api.example.com or *.example.com, not {shown(text)}")
    return text.lower()


def path(text: str) -> str:
    """A pattern in segments, or a framework's own, which matches as the route that it is."""
    foreign = not set("<(^").isdisjoint(text)
    if text in ("*", "**"):
        return text
    if not foreign:
        if not text.startswith("/"):
            raise ValueError(f"a path begins with a slash: /{text[:80]}")
        if "?" in text or "#" in text:
            raise ValueError(f"a path ends before '?' and '#', not {shown(text)}")
        if "%" in text:
            text = normal_path(text)  # calls are compared decoded
        for segment in text.split("/"):
            if "*" in segment and segment not in ("*", "**"):
                raise ValueError(f"'*' stands for a whole segment, not for a part of {segment!r}")
            if not set("{}").isdisjoint(segment) and not _PARAMETER.fullmatch(segment):
                raise ValueError(f"a parameter is a whole segment, not a part of {segment!r}")
            if segment in (".", ".."):
                raise ValueError("paths are compared without '.' and '..': write them so")
        if "//" in text:
            raise ValueError("paths are compared without '//': write them so")
    pattern(text)
    return text


def network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError:
        pass
    try:
        meant = f": {ip_network(text, strict=False)}?"
    except ValueError:
        meant = ""
    raise ValueError(
        f"a network is such as 192.0.2.0/24 or 2001:db8::/32, not {shown(text)}{meant}"
    )


def redirect(text: str) -> str:
    if not re.match(r"/|https?://[^/\s]", text) or not text.isascii() or " " in text:
        raise ValueError(f"a redirect goes to a path or an https:// address, not {shown(text)}")
    return text


def function(text: str) -> str:
    if not _FUNCTION.fullmatch(text):
        raise ValueError(f"a function is written as module:name, not {shown(text)}")
    return text


def size(text: str) -> str:
    """A number of bytes, written as in a limit; kept as its number."""
    if _SIZE.fullmatch(text):
        try:
            return str(Limit.parse(f"{text}/second").amount)
        except ValueError:
            pass
    raise ValueError(f"a size is such as 1KiB or 500B, not {shown(text)}")
