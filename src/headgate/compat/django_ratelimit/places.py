"""Where calls are counted: by a setting, or where Django's cache is."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

__all__ = ["store_of"]

INSTEAD = (
    'set HEADGATE = {"STORE": "redis://host:6379/0"} for several machines, '
    '"zone:///run/app.zone?size=16MiB" for one, or "memory://" for one process'
)
REDIS = ("django.core.cache.backends.redis.RedisCache", "django_redis.cache.RedisCache")
MEMORY = "django.core.cache.backends.locmem.LocMemCache"


def store_of() -> Any:
    """The address of a store, or a store."""
    if getattr(settings, "RATELIMIT_HASH_ALGORITHM", None) is not None:
        raise ImproperlyConfigured(
            "RATELIMIT_HASH_ALGORITHM: headgate files keys itself; take the setting away"
        )
    given = getattr(settings, "HEADGATE", {}).get("STORE")
    if given is not None:
        return given
    name = getattr(settings, "RATELIMIT_USE_CACHE", "default")
    cache = settings.CACHES.get(name)
    if cache is None:
        raise ImproperlyConfigured(f"there is no cache {name!r}; {INSTEAD}")
    kind = cache["BACKEND"]
    if kind == MEMORY:
        return "memory://"
    place = cache.get("LOCATION")
    place = place[0] if isinstance(place, list | tuple) else place
    if kind in REDIS and not cache.get("OPTIONS"):
        return str(place).split(",")[0].split(";")[0]
    raise ImproperlyConfigured(f"headgate does not count in the cache {name!r} ({kind}): {INSTEAD}")
