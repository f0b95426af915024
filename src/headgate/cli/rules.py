"""`headgate rules`: whether a rules file is right, and which rules are in force."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from typing import Any

from ..errors import HeadgateError, RulesError
from . import explain

__all__ = ["register"]


def register(commands: Any) -> None:
    """Add the command and what it can do."""
    parser = commands.add_parser("rules", help="check and follow rules", description=__doc__)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    validate = actions.add_parser("validate", help="read a rules file, and say what is wrong")
    validate.add_argument("path", metavar="FILE", help="the file; - is the standard input")
    validate.add_argument("--format", choices=("yaml", "toml", "json"), help="unless its name says")
    validate.set_defaults(run=_validate)
    status = actions.add_parser("status", help="which rules are in force, and what went wrong")
    status.add_argument(
        "source",
        metavar="SOURCE",
        help="a rules file, a status file that a program writes,"
        " redis://..., or a service's http://host:port",
    )
    status.add_argument("--key", default="hg:rules", help="where in Redis they are (hg:rules)")
    status.add_argument("--token-file", metavar="FILE", help="the token of a service's API")
    status.set_defaults(run=_status)
    publish = actions.add_parser("publish", help="put a rules file into Redis for all nodes")
    publish.add_argument("path", metavar="FILE", help="the file")
    publish.add_argument("url", metavar="URL", help="redis://...")
    publish.add_argument("--key", default="hg:rules", help="where in Redis (hg:rules)")
    publish.set_defaults(run=_publish)
    explain.register(actions)
    for action in (validate, status, publish):
        action.add_argument("--json", action="store_true", help="print JSON")


def _validate(options: argparse.Namespace) -> int:
    from ..rules.either import read_either
    from ..rules.following import counted
    from ..rules.lines import SIZE
    from ..rules.reading import digest_of, read_text

    try:
        if options.path == "-":
            text, name = sys.stdin.buffer.read(SIZE + 1), "<stdin>"
        else:
            text, name = read_text(options.path), options.path
        rules = read_either(text, name=name, format=options.format)
        _check(rules)
    except RulesError as error:
        if options.json:
            print(json.dumps({"valid": False, "errors": [_told(one) for one in _all(error)]}))
        else:
            for one in _all(error):
                _say(str(one))
        return 1
    found = {"valid": True, **counted(rules), "digest": digest_of(text)}
    if options.json:
        print(json.dumps(found))
    else:
        _say(f"{name}: {_counted(found)}, digest {found['digest'][:12]}")
    return 0


def _check(rules: Any) -> None:
    """Raise if there are policies that no gate could make."""
    if getattr(rules, "policies", ()) or getattr(rules, "system", None) is not None:
        from ..gating.guards import check_policies

        check_policies(rules)


def _status(options: argparse.Namespace) -> int:
    try:
        if options.source.startswith(("http://", "https://")):
            found = _of_service(options)
        else:
            found = _of_redis(options) if "://" in options.source else _of_file(options.source)
    except HeadgateError as error:
        _say(str(error))
        return 2
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)
    broken = [found, *found.get("nodes", {}).values()]
    return 1 if any(status["last_error"] for status in broken) else 0


def _of_file(path: str) -> dict[str, Any]:
    """What a program wrote down, or what a rules file says itself."""
    from ..rules.reading import read_text
    from ..rules.sources import FileSource

    _quiet()
    try:
        held = json.loads(read_text(path))
        if isinstance(held, dict) and {"source", "digest", "last_error", "rules"} <= held.keys():
            return held
    except (ValueError, RecursionError) as error:
        if isinstance(error, RulesError):
            raise
    source = FileSource(path)
    source.check(again=True)
    return source.status()


def _of_redis(options: argparse.Namespace) -> dict[str, Any]:
    from ..rules.redis_source import RedisSource

    _quiet()
    source = RedisSource(options.source, options.key, timeout=2.0)
    try:
        held = source.published()
        source.check(again=True)
        found = source.status()
        found["published_at"] = float(held["at"]) if held.get("at") else None
        found["nodes"] = source.nodes()
        return found
    finally:
        source.stop()


def _quiet() -> None:
    """What a source logs of broken rules is in the report already, and would be said twice."""
    logging.getLogger("headgate").addHandler(logging.NullHandler())


def _of_service(options: argparse.Namespace) -> dict[str, Any]:
    """What a running service has in force; its admin listener says the same."""
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    url = f"{options.source.rstrip('/')}/v1/rules"
    try:
        headers = {}
        if options.token_file:
            with open(options.token_file, encoding="utf-8") as file:
                headers["Authorization"] = f"Bearer {file.read().strip()}"
        with urlopen(Request(url, headers=headers), timeout=5) as answer:
            found: dict[str, Any] = json.loads(answer.read())["status"]
            return found
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise HeadgateError(f"{url}: {error}") from None


def _publish(options: argparse.Namespace) -> int:
    from ..rules.either import read_either
    from ..rules.reading import read_text
    from ..rules.redis_source import RedisSource

    source = RedisSource(options.url, options.key, timeout=2.0)
    try:
        text = read_text(options.path)
        _check(read_either(text, name=options.path))
        version = source.publish(text, name=options.path)
    except HeadgateError as error:
        if options.json:
            told = [_told(one) for one in _all(error)] if isinstance(error, RulesError) else []
            print(json.dumps({"published": False, "errors": told or [{"problem": str(error)}]}))
        else:
            for one in _all(error):
                _say(str(one))
        return 1 if isinstance(error, RulesError) else 2
    finally:
        source.stop()
    if options.json:
        print(json.dumps({"published": True, "to": source.name, "digest": version}))
    else:
        _say(f"published to {source.name}, digest {version[:12]}")
    return 0


def _show(found: dict[str, Any]) -> None:
    rules = _counted(found)
    _say(f"{found['source']}: {rules}, digest {found['digest'][:12] or 'none'}")
    for name, label in (("published_at", "published"), ("loaded_at", "loaded")):
        if found.get(name):
            print(f"  {label:<10} {_when(found[name])}")
    if found["last_error"]:
        stay = "; the rules before it stay in force" if found["digest"] else ""
        _say(f"  broken     {found['last_error']}{stay}")
    for name, node in sorted(found.get("nodes", {}).items()):
        same = "follows" if node["digest"] == found["digest"] else f"has {node['digest'][:12]}"
        error = f"; {node['last_error']}" if node["last_error"] else ""
        _say(f"  node       {name} {same}, since {_when(node['loaded_at'])}{error}")


def _all(error: HeadgateError) -> list[HeadgateError]:
    return [error, *getattr(error, "more", ())]


def _told(error: HeadgateError) -> dict[str, Any]:
    return {name: getattr(error, name) for name in ("file", "line", "rule", "problem")}


def _counted(found: dict[str, Any]) -> str:
    """What there is: 3 rules, 1 policy, the machine."""
    rules, policies = found["rules"], found.get("policies", 0)
    told = [f"{rules:,} rule{'' if rules == 1 else 's'}"]
    if policies:
        told.append(f"{policies:,} polic{'y' if policies == 1 else 'ies'}")
    if found.get("system"):
        told.append("system")
    return ", ".join(told)


def _when(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else "never"


def _say(text: str) -> None:
    """Print a text whatever characters are in it: paths are made of any."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))
