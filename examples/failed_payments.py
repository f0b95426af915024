"""Three failed payments a day for each card; payments that succeed cost nothing.

One failure is counted while a payment is under way and given back if it succeeds, so a hundred
guesses at the same time do not slip through a limit of three.
"""

from concurrent.futures import ThreadPoolExecutor

from headgate import Limiter, LimitExceeded, ManualClock


class DeclinedError(Exception):
    """The bank said no."""


clock = ManualClock()
failures = Limiter("3/day fixed-window", clock=clock)


@failures.limited(key=lambda card, code: ("card", card), count="failures", failures=DeclinedError)
def pay(card: str, code: str) -> str:
    if code != "123":
        raise DeclinedError
    return "paid"


def outcome(card: str, code: str) -> str:
    try:
        return pay(card, code)
    except DeclinedError:
        return "declined"
    except LimitExceeded as refusal:
        return f"blocked for {refusal.retry_after / 3600:g} h"


def main() -> dict[str, list[str]]:
    story = {"good": [outcome("4929", "123") for _ in range(5)]}
    story["bad"] = [outcome("4929", code) for code in ("111", "222", "123", "333", "444", "123")]

    with ThreadPoolExecutor(max_workers=20) as crowd:
        guesses = crowd.map(lambda n: outcome("5555", f"9{n:02}"), range(100))
        story["guesses"] = [guess for guess in guesses if guess == "declined"]

    for name, answers in story.items():
        print(f"{name:8}", *answers, sep="  ")
    return story


if __name__ == "__main__":
    main()
