"""One order per user every 30 minutes: the half hour begins with the order itself."""

from headgate import Limiter, ManualClock

MINUTE = 60


def main() -> list[str]:
    clock = ManualClock()
    orders = Limiter("1/30min fixed-window first-hit", clock=clock)
    diary = []

    def order(user: str) -> None:
        decision = orders.hit(("order", user))
        wait = f"try again in {decision.retry_after / MINUTE:g} min"
        verdict = "accepted" if decision else f"refused, {wait}"
        diary.append(f"{clock.now() / MINUTE:2g} min  {user:5}  {verdict}")

    order("ann")
    order("bob")  # another user, another half hour
    clock.advance(10 * MINUTE)
    order("ann")
    clock.advance(20 * MINUTE)
    order("ann")

    print(*diary, sep="\n")
    return diary


if __name__ == "__main__":
    main()
