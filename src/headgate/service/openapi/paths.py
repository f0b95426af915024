"""The paths of the API."""

from __future__ import annotations

from typing import Any

from .schemas import ref

__all__ = ["PATHS"]

COMMON = {"401": "Unauthorized", "405": "MethodNotAllowed", "503": "Away"}
BODY = {"400": "BadRequest", "408": "Slow", "413": "TooLarge", "415": "NotJson", "422": "Wrong"}
HEADERS = {
    name: {"schema": {"type": "string"}, "description": about}
    for name, about in {
        "RateLimit-Policy": "The limits that applied.",
        "RateLimit": "What is left of them.",
        "Retry-After": "Seconds until it is worth trying again.",
    }.items()
}
STATUS = {
    "name": "status",
    "in": "query",
    "description": "The status of a refusal: 200, or 429 for that of the rule that refused. "
    "`Prefer: status=429` says the same.",
    "schema": {"type": "string", "enum": ["200", "429"]},
}
TOKEN = {
    "name": "token",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_=-]{1,4096}$"},
}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(
    name: str,
    summary: str,
    answer: Any,
    *,
    asks: Any = None,
    optional: bool = False,
    verdict: bool = False,
    found: bool = True,
    parameters: tuple[Any, ...] = (),
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        code: {"$ref": f"#/components/responses/{problem}"} for code, problem in COMMON.items()
    }
    told: dict[str, Any] = {"description": "The answer.", "content": _json(answer)}
    if verdict:
        told["headers"] = HEADERS
        for code, about in (
            ("403", "Refused by a deny list, as was asked for by status=429."),
            ("429", "Refused, as was asked for by status=429."),
            ("4XX", "Refused with the rule's own status, or a problem."),
            ("5XX", "Refused with the rule's own status, or a problem."),
        ):
            content = told["content"] | {"application/problem+json": {"schema": ref("Problem")}}
            responses[code] = told | {"description": about, "content": content}
    responses["200"] = told
    made: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    if asks is not None:
        made["requestBody"] = {"required": not optional, "content": _json(asks)}
        responses.update(
            (code, {"$ref": f"#/components/responses/{problem}"}) for code, problem in BODY.items()
        )
    elif parameters:
        for code in ("400", "422"):
            responses[code] = {"$ref": f"#/components/responses/{BODY[code]}"}
    if not found:
        responses["404"] = {"$ref": "#/components/responses/NotFound"}
    if parameters:
        made["parameters"] = list(parameters)
    made["responses"] = dict(sorted(responses.items()))
    return made


def _text(name: str, about: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "in": "query", "schema": {"type": "string"}}
    return {**found, "description": about} if about else found


def _whole(name: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
    return {"name": name, "in": "query", "schema": schema}


PEEKED = (
    *(_text(name) for name in ("method", "path", "host", "resource", "route", "user", "device",
                               "api_key", "origin", "domain", "rule")),
    _text("ip", "An address."),
    {"name": "key", "in": "query", "explode": True, "description": "Several are one key's parts.",
     "schema": {"type": "array", "items": {"type": "string"}}},
    _whole("cost"),
)  # fmt: skip
OBJECT = {"type": "object"}
GROUPS = {"type": "array", "items": {"type": "array", "items": ref("Ask")}}
OUTCOMES = {"type": "array", "items": {"type": "array", "items": ref("Outcome")}}
LIMIT = {
    "type": "object",
    "properties": {"limit": {"type": ["string", "null"]}},
    "required": ["limit"],
}


def _only(name: str, schema: Any, *, closed: bool = False) -> dict[str, Any]:
    made = {"type": "object", "properties": {name: schema}, "required": [name]}
    return {**made, "additionalProperties": False} if closed else made


PATHS: dict[str, Any] = {
    "/v1/check": {
        "post": _operation(
            "check", "Whether a call may go ahead; takes what it costs", ref("Verdict"),
            asks=ref("Call"), verdict=True, parameters=(STATUS,),
        ),
    },
    "/v1/check/batch": {
        "post": _operation(
            "checkBatch", "Several calls, each by itself; none waits",
            _only("verdicts", {"type": "array", "items": ref("Verdict")}),
            asks=_only("calls", {"type": "array", "items": ref("Call"), "maxItems": 1000},
                       closed=True),
        ),
    },
    "/v1/peek": {
        "get": _operation("peek", "Would it pass? Takes nothing", ref("Verdict"),
                          parameters=PEEKED),
        "post": _operation("peekCall", "Would it pass? Takes nothing", ref("Verdict"),
                           asks=ref("Call")),
    },
    "/v1/permits": {
        "post": _operation(
            "acquire", "As a check; what is held has a lease of its own", ref("Verdict"),
            asks=ref("Permit"), verdict=True, parameters=(STATUS,),
        ),
    },
    "/v1/permits/{token}": {
        "put": _operation(
            "renew", "Let what is held live on; the answer has the token to go on with",
            {"anyOf": [_only("permit", ref("Held")), _only("reservation", ref("Held"))]},
            asks={"type": "object", "additionalProperties": False,
                  "properties": {"ttl": {"type": ["number", "null"], "minimum": 0.001,
                                         "maximum": 3600}}},
            optional=True, found=False, parameters=(TOKEN,),
        ),
        "delete": _operation(
            "release", "Give back, and say how the call ended",
            _only("released", {"type": "boolean"}),
            found=False,
            parameters=(TOKEN, {
                "name": "outcome", "in": "query",
                "description": "A success gives back what rules with `count: failures` counted.",
                "schema": {"type": "string", "enum": ["success", "failure", "ignored"]},
            }),
        ),
    },
    "/v1/reserve": {
        "post": _operation(
            "reserve", "Take an estimated cost, to be settled", ref("Verdict"),
            asks=ref("Reserve"), verdict=True, parameters=(STATUS,),
        ),
    },
    "/v1/settle": {
        "post": _operation(
            "settle", "Replace what was reserved by what it has cost",
            _only("settled", {"type": "boolean"}),
            asks={
                "type": "object", "required": ["token", "cost"], "additionalProperties": False,
                "properties": {
                    "token": {"type": "string"},
                    "cost": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
                },
            },
            found=False,
        ),
    },
    "/v1/decide": {
        "post": _operation("decide", "The store itself, for clients that are stores",
                           _only("groups", OUTCOMES), asks=_only("groups", GROUPS, closed=True)),
    },
    "/v1/assign": {
        "post": _operation("assign", "Give a key a limit of its own", LIMIT, asks=ref("Assign")),
    },
    "/v1/assigned": {
        "post": _operation("assigned", "The limit that a key was given", LIMIT, asks=ref("Place")),
    },
    "/v1/rules": {
        "get": _operation(
            "rules", "The rules in force, and what went wrong with others",
            {"type": "object", "required": ["status", "rules"],
             "properties": {"status": OBJECT, "rules": {"type": "array", "items": OBJECT}}},
        ),
    },
    "/healthz": {"get": _operation("health", "Whether the process runs", OBJECT)},
    "/readyz": {"get": _operation("ready", "Whether to send anybody here", OBJECT)},
    "/openapi.json": {"get": _operation("document", "This document", OBJECT)},
}  # fmt: skip
