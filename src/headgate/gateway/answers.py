"""Answers: what the gateway says itself, as problem details."""

from __future__ import annotations

from ..headers import retry_seconds
from ..integrations.scopes import Send
from ..service.faults import Fault

__all__ = ["send_fault", "too_early"]


def too_early(status: int, detail: str, wait: float) -> Fault:
    """A call that would not help before `wait` seconds have passed."""
    again = b"retry-after", str(retry_seconds(wait)).encode()
    return Fault(status, detail, headers=[again])


async def send_fault(send: Send, fault: Fault, prefix: str = "http.response") -> None:
    """Send it as a response."""
    status, headers, body = fault.response()
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": f"{prefix}.start", "status": status, "headers": headers})
    await send({"type": f"{prefix}.body", "body": body})
