"""Tokens of a language model: take an estimate first, settle the real cost afterwards."""

from headgate import Limiter, LimitExceeded, ManualClock

clock = ManualClock()
tokens = Limiter("10000/minute token-bucket", clock=clock)


def complete(prompt: str, most: int) -> int:
    """A model that answers with two tokens for each word it was given."""
    return min(most, 2 * len(prompt.split()))


def ask(team: str, prompt: str, most: int) -> str:
    estimate = len(prompt.split()) + most  # what it may cost at worst
    try:
        with tokens.reserve(team, cost=estimate) as reservation:
            answer = complete(prompt, most)
            real = len(prompt.split()) + answer
            reservation.settle(real)
    except LimitExceeded as refusal:
        return f"refused, retry after {refusal.retry_after:g} s"
    return f"estimated {estimate}, cost {real}, left {tokens.peek(team).remaining}"


def main() -> list[str]:
    story = [
        ask("blue", "why is the sky blue " * 20, most=4_000),
        ask("blue", "tell me a very long story " * 200, most=8_000),
        ask("blue", "and now another one " * 500, most=4_900),
    ]
    clock.advance(12)
    story.append(ask("blue", "and now another one " * 500, most=4_900))
    print(*story, sep="\n")
    return story


if __name__ == "__main__":
    main()
