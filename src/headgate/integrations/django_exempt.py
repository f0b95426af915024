"""Django: views that no limit holds for.

A middleware comes before the URLs are looked at, so it has to look for itself which view a request
is for. That is done only once some view is exempt.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from django.urls import Resolver404, get_resolver, get_urlconf, resolve

__all__ = ["exempt", "is_exempt", "is_spared"]

View = TypeVar("View", bound=Callable[..., Any])
MARK = "headgate_exempt"

_any = False
"""Whether a view of this process is exempt."""
_known: set[Any] = set()
"""Whose views have been imported."""


def exempt(view: View) -> View:
    """A decorator: no limit holds for this view, neither of the middleware nor of its own.

    For a function, a class of views, one of its methods (`get`), or by
    `@method_decorator(exempt, name="dispatch")`.
    """
    global _any
    _any = True
    setattr(view, MARK, True)
    return view


def is_exempt(request: Any) -> bool:
    """Whether the view that a request is for is exempt; for those who come before it is called."""
    urls = getattr(request, "urlconf", None) or get_urlconf()
    if urls not in _known:
        with suppress(Exception):  # Django will say what is wrong with them
            get_resolver(urls).url_patterns  # noqa: B018 # imports the views, and so their marks
            _known.add(urls)
    if not _any:
        return False
    try:
        match = resolve(request.path_info, urls)
    except Resolver404:
        return False
    return _marked(match.func, request.method)


def is_spared(request: Any, view: Any) -> bool:
    """The same for a view that is being called, and is known to the URLs or marked itself."""
    if not _any:
        return False
    match = getattr(request, "resolver_match", None)
    return bool(getattr(view, MARK, False)) or (
        match is not None and _marked(match.func, request.method)
    )


def _marked(view: Any, method: str | None) -> bool:
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if getattr(view, MARK, False) or getattr(kind, MARK, False):
        return True
    name = (method or "").lower()
    handler = getattr(kind, name, None)
    if handler is None and name == "head":
        handler = getattr(kind, "get", None)
    return bool(getattr(handler, MARK, False))
