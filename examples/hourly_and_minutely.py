"""500 an hour and 10 a minute: a call passes both limits or is counted by neither."""

from headgate import Limiter, ManualClock


def main() -> dict[int, int]:
    clock = ManualClock()
    api = Limiter("500/hour fixed-window", "10/minute fixed-window", clock=clock)
    passed = {}

    for minute in range(62):  # somebody asks twenty times a minute
        passed[minute] = sum(api.hit("key:1").allowed for _ in range(20))
        if minute in (0, 49, 50, 60):
            hour, per_minute = api.peek("key:1").parts
            print(
                f"minute {minute:2}: {passed[minute]:2} passed, "
                f"left: {hour.remaining} this hour, {per_minute.remaining} this minute"
            )
        clock.advance(60)

    print(f"first hour: {sum(passed[minute] for minute in range(60))} passed")
    return passed


if __name__ == "__main__":
    main()
