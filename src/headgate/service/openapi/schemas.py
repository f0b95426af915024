"""The schemas of what is asked and answered."""

from __future__ import annotations

from typing import Any

__all__ = ["PROBLEM", "RESPONSES", "SCHEMAS", "ref"]

WHOLE = 2**53 - 1
TEXT = {"type": "string", "maxLength": 8192}
TEXTS = {"type": "object", "additionalProperties": TEXT, "maxProperties": 100}
VALUES = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [TEXT, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]
    },
    "maxProperties": 100,
}
SECONDS = {"type": ["number", "null"]}


def ref(name: str) -> dict[str, str]:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> Any:
    made = {"type": "object", "properties": properties, **more}
    return {**made, "required": list(required)} if required else made


FACTS: dict[str, Any] = {
    "method": {**TEXT, "description": "As HTTP writes it: GET."},
    "path": {**TEXT, "description": "Normalised here: //login is /login; what follows ? is cut."},
    "host": TEXT,
    "resource": {**TEXT, "description": "What is protected where there is no path."},
    "route": {**TEXT, "description": "The framework's pattern that the path matched."},
    "headers": {**TEXTS, "description": "By name; several of one name are joined by a comma."},
    "ip": {"type": "string", "description": "The client's address.",
           "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}, {"maxLength": 0}]},
    "user": TEXT,
    "device": TEXT,
    "api_key": TEXT,
    "origin": {**TEXT, "description": "The service that calls."},
    "params": {**TEXTS, "description": "Parameters in the path."},
    "args": {**VALUES, "description": "Arguments of the call."},
    "attributes": {**VALUES, "description": "What is known of the user: the plan, a role."},
    "entries": {
        "description": "A descriptor as Envoy has it: pairs of key and value.",
        "anyOf": [
            TEXTS,
            {
                "type": "array", "maxItems": 100,
                "items": {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2},
            },
        ],
    },
    "domain": TEXT,
    "chain": {"type": "array", "items": TEXT, "maxItems": 100},
    "size": {"type": "integer", "minimum": 0, "maximum": WHOLE,
             "description": "Bytes of the body."},
    "priority": {"type": "integer", "minimum": -1_000_000, "maximum": 1_000_000},
}  # fmt: skip
ASKED: dict[str, Any] = {
    **FACTS,
    "rule": {**TEXT, "description": "One rule by its name, in place of all that match."},
    "key": {**ref("Key"), "description": "Whom that rule counts."},
    "cost": {"type": "integer", "minimum": 0, "maximum": WHOLE,
             "description": "In place of what the rules say."},
}  # fmt: skip
NEEDS: dict[str, Any] = {"dependentRequired": {"key": ["rule"]}, "additionalProperties": False}
TTL = {"type": ["number", "null"], "minimum": 0.001, "maximum": 3600,
       "description": "Seconds until it comes back by itself."}  # fmt: skip
BYTES = _object(
    {"b": {"type": "string", "contentEncoding": "base64", "pattern": "^([A-Za-z0-9+/]{4})*$"}},
    ("b",),
    additionalProperties=False,
)
HELD = _object(
    {
        "token": {"type": "string", "description": "Names what is held, at any worker and node."},
        "lease": {**SECONDS, "description": "Seconds until it comes back; null: it only waits to "
                  "hear how the call ended."},
    },
    ("token", "lease"),
)  # fmt: skip

SCHEMAS: dict[str, Any] = {
    "Key": {
        "description": 'A text, {"b": base64} for bytes, or a list of such.',
        "anyOf": [
            {"type": "string"},
            BYTES,
            {"type": "array", "items": {"anyOf": [{"type": "string"}, BYTES]}},
        ],
    },
    "Call": _object(
        ASKED, description="A call by its facts, or by a rule's name and a key.", **NEEDS
    ),
    "Permit": _object({**ASKED, "ttl": TTL}, **NEEDS),
    "Reserve": _object({**ASKED, "ttl": TTL}, ("cost",), **NEEDS),
    "Held": HELD,
    "Decision": _object(
        {
            "rule": {"type": "string"},
            "limit": {"type": "string"},
            "allowed": {"type": "boolean"},
            "remaining": {"type": "integer"},
            "retry_after": SECONDS,
            "reset_after": SECONDS,
            "shadow": {"type": "boolean", "description": "It only watches."},
        },
        ("rule", "limit", "allowed", "remaining", "retry_after", "reset_after"),
    ),
    "Verdict": _object(
        {
            "allowed": {"type": "boolean"},
            "rule": {"type": "string", "description": "Which rule refused; or empty."},
            "status": {"type": "integer", "description": "What to answer the client with."},
            "retry_after": {**SECONDS, "description": "0 if it passed, null if never."},
            "remaining": {"type": ["integer", "null"]},
            "decisions": {"type": "array", "items": ref("Decision")},
            "degraded": {"type": "boolean", "description": "A stand-in decided."},
            "shadowed": {"type": "array", "items": {"type": "string"}},
            "delay": {"type": "number", "description": "Seconds to let pass before acting."},
            "exempt": {"type": "string"},
            "permit": ref("Held"),
            "reservation": ref("Held"),
        },
        ("allowed", "rule", "status", "retry_after", "remaining", "decisions", "degraded",
         "shadowed"),
    ),
    "Ask": _object(
        {
            "op": {"enum": ["take", "check", "shadow", "charge", "refund", "settle", "release",
                            "renew", "reset"]},
            "limit": {"type": "string", "maxLength": 1024, "examples": ["100/minute"]},
            "id": {"type": "string"},
            "key": ref("Key"),
            "cost": {"type": "integer", "minimum": 0, "maximum": WHOLE},
            "space": {"type": "string"},
            "max_wait": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
            "least": {"type": "integer", "minimum": -1, "maximum": WHOLE},
            "token": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
            "ttl": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
            "at": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
            "room": {"type": "integer", "minimum": 0, "maximum": 1000},
        },
        ("limit",),
        additionalProperties=False,
    ),
    "Outcome": _object(
        {
            **{word: {"type": "integer"} for word in ("wait", "a", "b", "c", "now", "cost")},
            "own": {"type": "string", "description": "The key's own limit, whose words these are."},
            "fence": {"type": "integer"},
            "degraded": {"type": "boolean"},
            "glance": {"type": "boolean", "description": "It would pass; nothing was taken."},
            "seen": {"type": "integer", "description": "a, b, c are what remains, the retry and "
                     "the reset, in ticks of which a second has so many."},
        },
        ("wait", "a", "b", "c", "now", "cost"),
    ),
    "Place": _object(
        {
            "space": {"type": "string"},
            "id": {"type": "string", "minLength": 1},
            "key": ref("Key"),
            "limit": {"description": "Not looked at."},
        },
        ("id",),
        additionalProperties=False,
    ),
    "Assign": _object(
        {
            "space": {"type": "string"},
            "id": {"type": "string", "minLength": 1},
            "key": ref("Key"),
            "limit": {"type": ["string", "null"], "maxLength": 1024},
        },
        ("id", "limit"),
        additionalProperties=False,
    ),
    "Problem": _object(
        {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "field": {"type": "string", "description": "Which part of the request was wrong."},
        },
        ("type", "title", "status", "detail"),
        description="Problem details, RFC 9457.",
    ),
}  # fmt: skip

PROBLEM = {"application/problem+json": {"schema": ref("Problem")}}
RESPONSES: dict[str, Any] = {
    name: {"description": about, "content": PROBLEM}
    for name, about in {
        "BadRequest": "The body is not JSON.",
        "Unauthorized": "A token is wanted.",
        "NotFound": "Nothing is held under this token.",
        "MethodNotAllowed": "Not by this method.",
        "Slow": "The request did not arrive in time.",
        "TooLarge": "The body is too large.",
        "NotJson": "Content-Type: application/json is wanted.",
        "Wrong": "A field is wrong; `field` says which.",
        "Away": "The store cannot answer, or the service is at its limit.",
    }.items()
}
