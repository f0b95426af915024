"""The OpenAPI document of the HTTP API."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from ..codec import dumps
from .paths import PATHS
from .schemas import RESPONSES, SCHEMAS

__all__ = ["DOCUMENT", "document"]

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "headgate",
        "version": version("headgate"),
        "description": "Whether a call may go ahead: rate limits, concurrency and quotas for "
        "services in any language.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    },
    "paths": PATHS,
    "components": {
        "schemas": SCHEMAS,
        "responses": RESPONSES,
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
    "security": [{}, {"token": []}],
}


@cache
def document() -> bytes:
    """The document as it is sent."""
    return dumps(DOCUMENT)
