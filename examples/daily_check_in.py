"""One check-in per natural day: the day of the players, not of the server."""

from datetime import datetime
from zoneinfo import ZoneInfo

from headgate import Limiter, ManualClock

SHANGHAI = ZoneInfo("Asia/Shanghai")


def main() -> list[bool]:
    evening = datetime(2026, 3, 1, 23, 58, tzinfo=SHANGHAI)
    clock = ManualClock(evening.timestamp())
    check_in = Limiter("1/day fixed-window tz Asia/Shanghai", clock=clock)
    answers = []

    for minutes in (0, 1, 1, 1):
        clock.advance(minutes * 60)
        decision = check_in.hit("player:7")
        answers.append(decision.allowed)
        now = datetime.fromtimestamp(clock.now(), SHANGHAI)
        again = datetime.fromtimestamp(decision.reset_at, SHANGHAI)
        verdict = "checked in" if decision else "already done"
        print(f"{now:%d %b %H:%M}  {verdict}, next from {again:%d %b %H:%M}")

    return answers


if __name__ == "__main__":
    main()
