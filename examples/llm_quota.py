"""A quota of a language model, shared by all machines: take an estimate, settle the real cost.

With REDIS_URL (such as redis://localhost:6379/0) the counts are kept by that server; without it
in memory.
"""

import asyncio
import os

from headgate import AsyncLimiter, LimitExceeded

STORE = os.environ.get("REDIS_URL", "memory://")


async def complete(prompt: int, most: int) -> int:
    """A model that answers half of what it is allowed to."""
    await asyncio.sleep(0.01)
    return most // 2


class Model:
    """The model as a team may use it: so many tokens in thirty days, two calls at a time."""

    def __init__(self) -> None:
        self.tokens = AsyncLimiter("10000/30d first-hit", name="tokens", store=STORE)
        self.calls = AsyncLimiter("2 concurrent", name="calls", store=STORE)

    async def ask(self, team: str, prompt: int, most: int) -> str:
        estimate = prompt + most  # what it may cost at worst
        try:
            async with (
                self.calls.hold(team, timeout=5),
                self.tokens.reserve(team, cost=estimate) as reservation,
            ):
                real = prompt + await complete(prompt, most)
                reservation.settle(real)  # noted, and sent on the way out
        except LimitExceeded as refusal:
            return f"refused, {refusal.decision.remaining} left"
        left = (await self.tokens.peek(team)).remaining
        return f"estimated {estimate}, cost {real}, left {left}"

    async def close(self) -> None:
        await self.tokens.close()
        await self.calls.close()


async def story() -> list[str]:
    model = Model()
    await model.tokens.set_limit("blue", None)  # in case this ran before
    await model.tokens.reset("blue")
    answers = [
        await model.ask("blue", prompt=500, most=4_000),
        await model.ask("blue", prompt=1_500, most=5_000),
        await model.ask("blue", prompt=1_000, most=3_000),
    ]
    await model.tokens.set_limit("blue", "20000/30d first-hit")  # they buy more
    answers.append(await model.ask("blue", prompt=1_000, most=3_000))
    await model.close()
    return answers


def main() -> list[str]:
    answers = asyncio.run(story())
    print(*answers, sep="\n")
    return answers


if __name__ == "__main__":
    main()
