"""The settings of a Flask application that a limiter reads."""

from __future__ import annotations

from typing import Any

from .. import NotOffered
from .limits import NO_META

__all__ = ["SETTINGS", "settled"]

SETTINGS = {
    "default_limits": "DEFAULT",
    "default_limits_per_method": "DEFAULTS_PER_METHOD",
    "default_limits_exempt_when": "DEFAULTS_EXEMPT_WHEN",
    "default_limits_deduct_when": "DEFAULTS_DEDUCT_WHEN",
    "default_limits_cost": "DEFAULTS_COST",
    "application_limits": "APPLICATION",
    "application_limits_per_method": "APPLICATION_PER_METHOD",
    "application_limits_exempt_when": "APPLICATION_EXEMPT_WHEN",
    "application_limits_deduct_when": "APPLICATION_DEDUCT_WHEN",
    "application_limits_cost": "APPLICATION_COST",
    "headers_enabled": "HEADERS_ENABLED",
    "strategy": "STRATEGY",
    "storage_uri": "STORAGE_URI",
    "swallow_errors": "SWALLOW_ERRORS",
    "fail_on_first_breach": "FAIL_ON_FIRST_BREACH",
    "on_breach": "ON_BREACH_CALLBACK",
    "in_memory_fallback": "IN_MEMORY_FALLBACK",
    "in_memory_fallback_enabled": "IN_MEMORY_FALLBACK_ENABLED",
    "retry_after": "HEADER_RETRY_AFTER_VALUE",
    "key_prefix": "KEY_PREFIX",
    "request_identifier": "REQUEST_IDENTIFIER",
}
"""An argument, and the setting that stands for it, behind RATELIMIT_."""
DEFAULTS = {"strategy": "fixed-window", "storage_uri": "memory://", "fail_on_first_breach": True}
META = ("META", "ON_META_BREACH_CALLBACK")


def settled(given: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Arguments, and settings for those that were not given."""
    if any(config.get(f"RATELIMIT_{word}") for word in META):
        raise NotOffered(NO_META)
    found = dict(given)
    for name, word in SETTINGS.items():
        if found.get(name) in (None, "", []):
            found[name] = config.get(f"RATELIMIT_{word}", DEFAULTS.get(name))
    options = {**(given.get("storage_options") or {})}
    found["storage_options"] = {**options, **config.get("RATELIMIT_STORAGE_OPTIONS", {})}
    return found
