"""What the tests of SQLAlchemy share: an engine with a table, and how it is asked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.pool import QueuePool

meta = MetaData()
things = Table("things", meta, Column("id", Integer, primary_key=True))
ONE = text("select 1")


@contextlib.contextmanager
def new_engine(folder: Path) -> Iterator[Engine]:
    """An engine with a table and a pool that has not been used."""
    made = create_engine(f"sqlite:///{folder}/db.sqlite", pool_size=5, max_overflow=5)
    assert isinstance(made.pool, QueuePool)
    meta.create_all(made)
    made.dispose()
    yield made
    made.dispose()


def ask(engine: Engine, statement: Any = ONE) -> Any:
    """What a statement returns, on a connection of its own."""
    with engine.connect() as conn:
        return conn.execute(statement).scalar()


def started(*functions: Callable[[], Any]) -> list[threading.Thread]:
    """Each of them in a thread, under way."""
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads
