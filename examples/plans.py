"""A limit for each customer's plan; an upgrade takes hold at once and forgets nothing."""

from headgate import Limiter, ManualClock

PLANS = {"free": "10/minute token-bucket", "pro": "100/minute token-bucket"}
CUSTOMERS = {"ann": "free", "bob": "pro"}


def limit_of(customer: str) -> str | None:
    """The limit of a customer's plan; None for the limiter's own."""
    return PLANS.get(CUSTOMERS.get(customer, ""))


def main() -> dict[str, int]:
    api = Limiter("2/minute token-bucket name api", limit_for=limit_of, clock=ManualClock())
    passed = {
        name: sum(api.hit(name).allowed for _ in range(500)) for name in ("ann", "bob", "guest")
    }

    CUSTOMERS["ann"] = "pro"  # her ten are still used, of a hundred now
    passed["ann, upgraded"] = sum(api.hit("ann").allowed for _ in range(500))

    api.set_limit("guest", "5/minute token-bucket")  # by hand, and above any plan
    passed["guest, helped"] = sum(api.hit("guest").allowed for _ in range(500))

    for name, count in passed.items():
        print(f"{name:15} {count:3} passed")
    return passed


if __name__ == "__main__":
    main()
