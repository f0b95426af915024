"""Rules that change while the program runs: files, and Redis."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import main
from headgate.errors import StoreError, StoreUnavailable
from headgate.rules import RulesError
from headgate.rules.sources import FileSource, RedisSource, Source
from servers import Server, until

pytest.importorskip("yaml")


def text(*limits: str) -> str:
    rules = [{"name": f"r{n}", "limit": limit} for n, limit in enumerate(limits)]
    return "version: 1\nrules: " + json.dumps(rules)


class Told:
    """What a source called back with."""

    def __init__(self, source: Source) -> None:
        self.rules: list[Any] = []
        self.errors: list[Exception] = []
        source.on_rules = self.rules.append
        source.on_error = self.errors.append


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(text("1/s"))
    return path


def replace(path: Path, content: str) -> None:
    other = path.with_suffix(".new")
    other.write_text(content)
    other.replace(path)


def test_a_file_is_followed(path: Path) -> None:
    source = FileSource(path)
    told = Told(source)
    with source:
        assert len(source.rules.rules) == 1
        assert source.start() is source.rules
        path.write_text(text("1/s", "2/s"))
        until(lambda: len(source.rules.rules) == 2)
        replace(path, text("1/s", "2/s", "3/s"))
        until(lambda: len(source.rules.rules) == 3)
        assert [len(rules.rules) for rules in told.rules] == [1, 2, 3]
        status = source.status()
        assert (status["rules"], status["updates"], status["errors"]) == (3, 3, 0)
        assert status["digest"] == source.rules.digest
        assert status["following"]
        assert status["source"] == str(path)
        assert abs(status["loaded_at"] - time.time()) < 60
    assert not source.status()["following"]
    assert [x for x in threading.enumerate() if x.name.startswith("headgate rules")] == []
    assert told.errors == []


def test_a_broken_file_keeps_the_last_good(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = FileSource(path)
    source.young = 0
    told = Told(source)
    good = path.read_text()
    with caplog.at_level(logging.INFO, "headgate"):
        assert source.check()
        for broken, problem in (
            ("version: 1\nrules: [{name: a, limit: 5/minuet}]", "rules.yaml:2: rule 'a'"),
            (good[:-4], "not YAML"),
            ("", "nothing in it"),
        ):
            path.write_text(broken)
            for _ in range(3):
                assert not source.check()
            assert problem in source.status()["last_error"]
        path.unlink()
        assert not source.check()
        assert "No such file" in source.status()["last_error"]
        assert len(source.rules.rules) == 1
        assert source.status()["errors"] == len(told.errors) == 4
        path.write_text(good)
        assert not source.check()
    status = source.status()
    assert (status["last_error"], status["errors"], status["updates"]) == (None, 4, 1)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 4
    assert "stay" in warnings[0].getMessage()
    assert all(isinstance(error, RulesError) for error in told.errors)


def test_one_change_within_a_tick_of_the_clock(path: Path) -> None:
    source = FileSource(path)
    assert source.check()
    before = path.stat()
    with path.open("r+") as file:  # the same size, in place, at the same time
        file.write(path.read_text().replace("1/s", "2/s"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.check()
    assert str(source.rules.rules[0].limits[0]) == "2/second"


def test_a_file_that_is_being_written_is_left_alone(path: Path) -> None:
    source = FileSource(path)
    source.start()
    try:
        lines = [f"- {{name: r{n}, limit: {n + 1}/s}}\n" for n in range(20)]
        told = Told(source)
        with path.open("w") as file:
            file.write("version: 1\nrules:\n")
            for line in lines:
                file.write(line)
                file.flush()
                time.sleep(0.02)  # the writer is slow, and each line makes a whole file
        until(lambda: len(source.rules.rules) == 20)
        assert told.errors == []
    finally:
        source.stop()


def test_rules_that_nobody_can_use_are_refused(path: Path) -> None:
    source = FileSource(path)

    def cannot(rules: Any) -> None:
        raise RuntimeError("cannot")

    source.check()
    source.on_rules = cannot
    source.on_error = cannot
    path.write_text(text("1/s", "2/s"))
    assert not source.check()
    assert (len(source.rules.rules), source.status()["last_error"]) == (1, "cannot")


def test_a_start_without_rules(tmp_path: Path) -> None:
    source = FileSource(tmp_path / "rules.yaml")
    with pytest.raises(RulesError, match="No such file"):
        source.start()
    assert not source.status()["following"]
    assert source.start(required=False).rules == ()
    try:
        (tmp_path / "rules.yaml").write_text(text("1/s"))
        until(lambda: source.rules is not None)
    finally:
        source.stop()
    source.stop()


def test_a_source_that_nobody_holds_ends(path: Path) -> None:
    source = FileSource(path)
    source.start()
    thread = source._thread
    assert thread is not None
    del source
    thread.join(60)
    assert not thread.is_alive()


def in_child(work: Any) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_follows_by_itself(path: Path, server: Server) -> None:
    writer = RedisSource(server.url, "fork:rules")
    writer.publish(text("1/s"))
    files, shared = FileSource(path), RedisSource(server.url, "fork:rules")
    with files, shared:
        seen: list[Any] = []
        files.on_rules = seen.append

        def child() -> None:
            until(lambda: len(seen) == 1)  # handed over once more, the same
            assert len(files.rules.rules) == 1
            path.write_text(text("1/s", "2/s"))
            writer.publish(text("1/s", "2/s", "3/s"))
            until(lambda: len(files.rules.rules) == 2)
            until(lambda: len(shared.rules.rules) == 3)

        with files._lock:  # as if another thread was at it
            in_child(child)
        until(lambda: len(files.rules.rules) == 2)
        until(lambda: len(shared.rules.rules) == 3)
    writer.stop()


def test_all_nodes_follow_within_a_second(server: Server) -> None:
    writer = RedisSource(server.client(), "many:rules")
    assert writer.published() == {}
    writer.publish(text("1/s"))
    nodes = [RedisSource(server.url, "many:rules") for _ in range(4)]
    nodes.append(RedisSource(server.client(decode_responses=True), "many:rules"))
    nodes.append(RedisSource(server.unix_url + "?budget=20ms&prefix=x", "many:rules"))
    try:
        assert [len(node.start().rules) for node in nodes] == [1] * 6
        version = writer.publish(json.dumps({"version": 1}), name="none.json")
        until(lambda: all(len(node.rules.rules) == 0 for node in nodes), 60)
        assert {node.status()["digest"] for node in nodes} == {version}
        until(lambda: len(writer.nodes()) == 1)  # all of one process
        [status] = writer.nodes().values()
        assert status["kind"] == "redis"
        published = writer.published()
        assert (published["version"], published["name"]) == (version, "none.json")
    finally:
        for node in nodes:
            node.stop()


def test_nothing_broken_is_published(server: Server) -> None:
    source = RedisSource(server.url, "broken:rules")
    with pytest.raises(StoreError, match="there are no rules under 'broken:rules'"):
        source.start()
    with pytest.raises(RulesError, match="'rulez' is unknown"):
        source.publish("version: 1\nrulez: []")
    assert source.published() == {}
    source.publish(text("1/s"))
    assert source.check()
    # By some other program, which does not read them first.
    with server.client() as client:
        client.hset("broken:rules", mapping={"text": b"\xff", "version": "2"})
        for _ in range(3):
            assert not source.check()
        status = source.status()
        assert (status["rules"], status["errors"]) == (1, 2)
        assert "UTF-8" in status["last_error"]
        client.delete("broken:rules")
    assert not source.check()
    assert "there are no rules" in source.status()["last_error"]
    assert len(source.rules.rules) == 1
    source.stop()


def test_a_server_that_is_away() -> None:
    with Server() as own:
        source = RedisSource(own.url)
        source.publish(text("1/s"))
        source.start()
        own.kill()
        until(lambda: source.status()["last_error"])
        assert len(source.rules.rules) == 1
        with pytest.raises(StoreUnavailable):
            source.publish(text("2/s"))
        own.start()
        RedisSource(own.client()).publish(text("1/s", "2/s"))
        until(lambda: len(source.rules.rules) == 2)
        assert source.status()["last_error"] is None
        own.stop()
        begun = time.monotonic()
        assert not source.check()
        assert time.monotonic() - begun < 30
        own.go_on()
        until(lambda: source.status()["last_error"] is None)
        source.stop()


def test_what_is_no_server() -> None:
    import redis.asyncio

    with pytest.raises(TypeError, match="without asyncio"):
        RedisSource(redis.asyncio.Redis())
    with pytest.raises(TypeError, match="not int"):
        RedisSource(5)
    with pytest.raises(StoreError, match="begins with redis://"):
        RedisSource("http://x").start()
    source = RedisSource("redis://user:secret@127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable):
        source.start()
    assert "secret" not in json.dumps(source.status())
    assert "secret" not in repr(source)


def test_status_of_files(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "status", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: 1 rule, digest ")
    told = path.with_name("status.json")
    source = FileSource(path, status_file=told)
    source.check()
    path.write_text("version: 1\nrules: x")
    source.check()
    assert main(["rules", "status", str(told)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: 1 rule, digest ")
    assert "expected a list of rules, not 'x'; the rules before it stay in force" in out
    assert main(["rules", "status", str(path)]) == 1
    assert "broken" in capsys.readouterr().out
    assert main(["rules", "status", str(path) + "x"]) == 2
    assert [entry.name for entry in sorted(path.parent.iterdir())] == ["rules.yaml", "status.json"]


def test_publish_and_status_of_redis(
    path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    key = ["--key", "cli:rules"]
    assert main(["rules", "status", server.url, *key]) == 1
    assert "there are no rules under 'cli:rules'" in capsys.readouterr().out
    assert main(["rules", "publish", str(path), server.url, *key]) == 0
    with RedisSource(server.url, "cli:rules") as node:
        until(node.nodes)
        assert main(["rules", "status", server.url, *key]) == 0
        out = capsys.readouterr().out
        assert ": 1 rule, digest " in out
        assert f":{os.getpid()} follows" in out
        assert main(["rules", "status", server.url, "--json", *key]) == 0
        assert len(json.loads(capsys.readouterr().out)["nodes"]) == 1
    path.write_text("rules: []")
    assert main(["rules", "publish", str(path), server.url, *key]) == 1
    assert "'version' is missing" in capsys.readouterr().out
    assert main(["rules", "status", "redis://127.0.0.1:1", *key]) == 2
