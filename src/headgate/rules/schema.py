"""The JSON Schema of a rules file, made from the same fields that read it.

`python -m headgate.rules.schema` prints it; `rules.schema.json` beside this file is that print.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from .fields import RULE
from .policy_fields import POLICY
from .reading import FILE

__all__ = ["rules_schema", "stored_schema", "written_schema"]


def rules_schema() -> dict[str, Any]:
    """The schema as a value."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "headgate rules",
        "description": "Rules of headgate: which calls are limited, by what key, and how far.",
        **FILE.schema(),
        "$defs": {
            "limit": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "description": "A limit, such as 100/minute, 10/second burst 20 or 20 concurrent.",
            },
            "rule": RULE.schema(),
            "policy": POLICY.schema(),
        },
    }


def written_schema() -> str:
    """The schema as it is published."""
    return json.dumps(rules_schema(), indent=2) + "\n"


def stored_schema() -> str:
    """The schema that came with the package."""
    return (files(__package__) / "rules.schema.json").read_text(encoding="utf-8")


if __name__ == "__main__":
    import sys

    sys.stdout.write(written_schema())
