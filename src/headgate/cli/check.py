"""`headgate check`: one decision from the shell. The exit status is 0 if allowed, 1 if refused.

By limits and a key, or by rules and facts. Without --store it is counted in this process alone,
which ends with the answer: that shows whether limits and rules are right, and no more.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import HeadgateError
from .facts import HELP, facts_of, rules_of
from .shown import as_json, complain, say, table

__all__ = ["register"]

INFINITY = float("inf")


def register(commands: Any) -> None:
    """Add the command and what it can do."""
    parser = commands.add_parser(
        "check",
        help="one decision from the shell",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("limits", nargs="*", metavar="LIMIT", help="such as '100/minute'")
    parser.add_argument(
        "--key", action="append", default=[], help="whom to count; several are a key of parts"
    )
    parser.add_argument("--cost", type=int, default=1, help="what the call costs (1)")
    parser.add_argument("--name", help="the namespace of the limits")
    parser.add_argument("--rules", metavar="FILE", help="a rules file, in place of limits")
    parser.add_argument("--facts", metavar="FACTS", default="{}", help=HELP)
    parser.add_argument("--store", metavar="URL", help="zone:///path, redis://..., headgate://...")
    parser.add_argument("--peek", action="store_true", help="take nothing (for limits)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    try:
        if bool(options.limits) == bool(options.rules):
            raise HeadgateError("give limits, such as '100/minute', or --rules FILE --facts FACTS")
        return _by_rules(options) if options.rules else _by_limits(options)
    except (HeadgateError, ValueError, TypeError, ImportError) as error:
        complain(f"headgate check: {error}")
        return 2


def _by_limits(options: argparse.Namespace) -> int:
    from .. import Limiter

    key: Any = options.key[0] if len(options.key) == 1 else tuple(options.key) or ""
    limiter = Limiter(*options.limits, name=options.name or "", store=options.store)
    try:
        ask = limiter.peek if options.peek else limiter.hit
        decision = ask(key, options.cost)
        parts: list[dict[str, Any]] = [
            {
                "limit": part.limit.text,
                "allowed": part.allowed,
                "remaining": part.remaining,
                "retry_after": part.retry_after,
                "reset_after": part.reset_after,
            }
            for part in decision.parts
        ]
        told = {
            "allowed": decision.allowed,
            "limit": decision.limit.text,
            "remaining": decision.remaining,
            "retry_after": decision.retry_after,
            "reset_after": decision.reset_after,
            "degraded": decision.degraded,
            "decisions": parts,
        }
    finally:
        limiter.close()
    return _shown(options, told, [(part["limit"], part) for part in parts])


def _by_rules(options: argparse.Namespace) -> int:
    from .. import Gate
    from ..service.api.told import told_of

    if options.key or options.cost != 1 or options.peek:
        raise HeadgateError("--key, --cost and --peek are for limits; rules read them from facts")
    facts = facts_of(options.facts)
    named = {"name": options.name} if options.name else {}
    with Gate(rules_of(options.rules), store=options.store, **named) as gate:
        verdict = gate.check(facts)
        told = told_of(verdict)
        told["headers"] = dict(verdict.headers())
        verdict.permit.release("ignored")  # the call is over: there was none
    rows = [(f"{part['rule']}: {part['limit']}", part) for part in told["decisions"]]
    return _shown(options, told, rows)


def _shown(
    options: argparse.Namespace, told: dict[str, Any], rows: list[tuple[str, dict[str, Any]]]
) -> int:
    allowed: bool = told["allowed"]
    if options.json:
        as_json(told)
        return 0 if allowed else 1
    say(_sentence(told), "bold green" if allowed else "bold red")
    if rows:
        cells = [
            (
                what,
                "yes" if part["allowed"] else "shadow" if part.get("shadow") else "no",
                str(part["remaining"]),
                _seconds(part["retry_after"]),
                _seconds(part["reset_after"]),
            )
            for what, part in rows
        ]
        styles = ["" if part["allowed"] else "red" for _, part in rows]
        table(("limit", "passes", "left", "retry after", "reset after"), cells, styles)
    return 0 if allowed else 1


def _sentence(told: dict[str, Any]) -> str:
    degraded = " (a stand-in decided: the store is away)" if told["degraded"] else ""
    if told["allowed"]:
        if told.get("exempt"):
            return f"allowed: exempt by rule {told['exempt']}"
        if not told["decisions"]:
            return "allowed: no rule is for this call"
        return f"allowed{degraded}"
    by = f"rule {told['rule']}" if "rule" in told else told["limit"]
    wait = told["retry_after"]
    again = "" if wait in (None, INFINITY) else f", retry after {_seconds(wait)}"
    status = f", status {told['status']}" if "status" in told else ""
    return f"refused by {by}{status}{again}{degraded}"


def _seconds(seconds: float | None) -> str:
    return (
        "never"
        if seconds is None or seconds == INFINITY
        else f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    )
