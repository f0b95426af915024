"""How many examples hypothesis tries: HEADGATE_EXAMPLES of them, 100 unless told."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    max_examples=int(os.environ.get("HEADGATE_EXAMPLES", "100")),
    deadline=None,  # a shared machine is slow at times
    derandomize="HEADGATE_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("default")
