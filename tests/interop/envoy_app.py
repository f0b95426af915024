"""The service as the tests serve it: rules and options from the environment."""

from __future__ import annotations

import json
import os
from typing import Any

from headgate import AsyncGate
from headgate.rules.envoy import read_envoy
from headgate.rules.reading import read_rules
from headgate.service.envoy.app import EnvoyService


def made() -> EnvoyService:
    """A service as the environment describes it."""
    told: dict[str, Any] = json.loads(os.environ["ENVOY_APP"])
    text = told["rules"]
    rules: Any = read_envoy(text) if "descriptors:" in text else read_rules(text)
    return EnvoyService(AsyncGate(rules, told.get("store")), **told.get("options", {}))


app = made()
