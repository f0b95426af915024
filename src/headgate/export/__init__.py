"""Export: rules written down for somebody else to enforce."""

from __future__ import annotations

from .nginx import Exported, nginx_config

__all__ = ["Exported", "nginx_config"]
