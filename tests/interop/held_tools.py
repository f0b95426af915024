"""What tests of several adapters know of what is held: how each call ended."""

from __future__ import annotations

import pytest

from headgate.gate import AsyncPermit, Permit


def noted_ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How calls ended: each time that something held was given back."""
    found: list[str] = []
    release, release_async = Permit.release, AsyncPermit.release

    def noted(permit: Permit, outcome: str = "success") -> bool:
        if permit:
            found.append(outcome)
        return release(permit, outcome)

    async def noted_async(permit: AsyncPermit, outcome: str = "success") -> bool:
        if permit:
            found.append(outcome)
        return await release_async(permit, outcome)

    monkeypatch.setattr(Permit, "release", noted)
    monkeypatch.setattr(AsyncPermit, "release", noted_async)
    return found
