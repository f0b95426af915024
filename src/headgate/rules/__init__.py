"""Rules: what a rules file says, read, watched and kept as values."""

from __future__ import annotations

from ..errors import RulesError
from .model import RuleSet
from .reading import load_rules, read_rules

__all__ = ["RuleSet", "RulesError", "load_rules", "read_rules"]
