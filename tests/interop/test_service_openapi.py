"""The OpenAPI document: every route is in it, and the running service does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it has no types
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from service_tools import Running, serving

from headgate import AsyncGate
from headgate.service.app import Service
from headgate.service.http import Endpoint
from headgate.service.openapi import DOCUMENT

RULES = """
version: 1
rules:
  - {name: api, match: {path: /api/*}, key: [user], limit: 3/hour}
  - {name: busy, match: {resource: db}, key: [user], limit: 1 concurrent}
  - {name: all, limit: 100000/hour}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(RULES) as running:
        yield running


def test_every_route_is_documented() -> None:
    service = Service(AsyncGate('{"version": 1, "rules": []}'))
    known: dict[str, set[str]] = {
        path: {method.upper() for method in item} for path, item in DOCUMENT["paths"].items()
    }
    served: dict[str, set[str]] = {}
    for path, handler in {
        **service.routes,
        "/v1/permits/{token}": service.under["/v1/permits"],
    }.items():
        assert isinstance(handler, Endpoint)
        served[path] = set(handler.methods) - {"HEAD"}
    assert served == known


def test_the_schemas_are_schemas() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    json.dumps(DOCUMENT, allow_nan=False)


schema: Any = schemathesis.openapi.from_dict(DOCUMENT)


@schema.parametrize()  # type: ignore[untyped-decorator] # made of the document
@settings(
    max_examples=15, deadline=None, derandomize=True, database=None,
    phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_the_service_does_what_it_says(case: Any, running: Running) -> None:
    answer = case.call(base_url=f"http://{running.where['http']}")
    case.validate_response(
        answer,
        checks=(
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ),
    )
