"""The middleware that answers refused calls by a view of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.module_loading import import_string

from .exceptions import Ratelimited

__all__ = ["RatelimitMiddleware"]


class RatelimitMiddleware:
    """Calls the view that the setting RATELIMIT_VIEW names."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> Any:
        """Answer a refused call; leave everything else alone."""
        if isinstance(exception, Ratelimited):
            return import_string(settings.RATELIMIT_VIEW)(request, exception)
        return None
