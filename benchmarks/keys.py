"""The keys that every scenario hits, the same for everybody."""

from random import Random

HOT_KEY = "user:42"
MANY = 100_000


def shuffled_keys(sweep: int) -> list[str]:
    """The 100,000 keys in the random order of one sweep.

    They are new strings each time, as keys of real requests are: none is the very object that
    lies in a table, and none has its hash worked out.
    """
    numbers = list(range(MANY))
    Random(sweep).shuffle(numbers)
    return [f"user:{number}" for number in numbers]
