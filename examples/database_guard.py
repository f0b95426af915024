"""A database that bears two reports at once and three writes an hour, whoever asks for more.

Eight threads ask for a report; two run, six wait for their turn. The fourth write is refused,
and told by which rule. With `store="zone://..."` or `store="redis://..."` the same holds for all
processes of a machine, or of all machines.
"""

import tempfile
import threading
from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Engine

from headgate import Refused
from headgate.integrations.sqlalchemy import guard_engine

RULES = """
{"version": 1, "rules": [
    {"name": "reports", "match": {"resource": "statement", "method": "SELECT"},
     "limit": "2 concurrent", "wait": "10s"},
    {"name": "writes", "match": {"resource": "statement", "method": ["INSERT", "UPDATE"]},
     "limit": "3/hour"}
]}
"""


class Report:
    """A slow query: it goes on when a second one runs beside it."""

    def __init__(self) -> None:
        self._pair = threading.Barrier(2, timeout=10)
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0

    def __call__(self) -> int:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        self._pair.wait()
        with self._lock:
            self._inside -= 1
        return 1


def reports(engine: Engine, report: Report) -> int:
    """How many reports were made by eight threads that asked at once."""
    made: list[Any] = []

    def ask() -> None:
        with engine.connect() as connection:
            made.append(connection.execute(text("select report()")).scalar())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(made)


def writes(engine: Engine) -> list[str]:
    """What came of four writes."""
    answers = []
    for number in range(4):
        try:
            with engine.begin() as connection:
                connection.execute(text("insert into orders values (:number)"), {"number": number})
            answers.append("written")
        except Refused as refused:
            answers.append(f"refused by rule {refused.verdict.rule}")
    return answers


def main() -> dict[str, Any]:
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/shop.sqlite", pool_size=8)
        event.listen(engine, "connect", lambda raw, _: raw.create_function("report", 0, report))
        with engine.begin() as connection:
            connection.execute(text("create table orders (number integer)"))
        guard_engine(engine, rules=RULES)
        made = reports(engine, report)
        outcome = {"reports": made, "at once": report.most, "writes": writes(engine)}
        engine.dispose()
    for what, came in outcome.items():
        print(f"{what}: {came}")
    return outcome


if __name__ == "__main__":
    main()
