"""Concurrency: a list of leases, each live until released or run out."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Leases"]


@dataclass
class Lease:
    """One permit that was granted."""

    token: int
    cost: int
    expires: int | None
    released: bool = False

    def live(self, now: int) -> bool:
        return not self.released and (self.expires is None or now < self.expires)


class Leases:
    """Every lease ever granted on a key."""

    def __init__(self, amount: int) -> None:
        self.amount = amount
        self.leases: list[Lease] = []

    def live(self, now: int) -> list[Lease]:
        return [lease for lease in self.leases if lease.live(now)]

    def used(self, now: int) -> int:
        return sum(lease.cost for lease in self.live(now))

    def take(self, now: int, token: int, cost: int, ttl: int | None) -> bool:
        if self.used(now) + cost > self.amount:
            return False
        self.leases.append(Lease(token, cost, None if ttl is None else now + ttl))
        return True

    def release(self, now: int, token: int) -> bool:
        for lease in self.live(now):
            if lease.token == token:
                lease.released = True
                return True
        return False

    def renew(self, now: int, token: int, ttl: int | None) -> bool:
        for lease in self.live(now):
            if lease.token == token:
                lease.expires = None if ttl is None else now + ttl
                return True
        return False
