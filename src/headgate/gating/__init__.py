"""Gating: what happens between Facts and a Verdict."""
