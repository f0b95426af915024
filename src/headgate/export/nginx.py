"""nginx: rules as limit_req and limit_conn, for those that nginx can enforce by itself.

What is written belongs into http {}, by an include. Each limit of a rule is a zone of its own,
whose key is empty for requests that the rule is not for. What nginx cannot do is left out, with
the reason; what it does in another way is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..rules.model import Rule, RuleSet
from .nginx_limits import Cannot, Directive, directive_of
from .nginx_variables import Condition, Variables, network_of, quoted

__all__ = ["Exported", "nginx_config"]

LEVELS = {"warning": "warn", "error": "error", "critical": "error"}
SIZE = re.compile(r"[1-9][0-9]{0,8}[kKmM]?", re.ASCII)
PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}", re.ASCII)
HEAD = """\
# Limits for nginx, written by headgate from {source}.
# Include this file in http {{}}. A server or location with limits of its own has none of these.
# The address is that of the connection: behind a proxy, set_real_ip_from must say whose word
# counts. A regular expression of a location whose $1 is used must name it: (?<name>...).
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """What came of it."""

    text: str
    """The configuration."""
    rules: tuple[str, ...]
    """The names of the rules that are in it."""
    differs: tuple[tuple[str, str], ...]
    """Of those, which nginx handles in another way, and how."""
    left_out: tuple[tuple[str, str], ...]
    """Rules that are not in it, and why."""


class Written(NamedTuple):
    """A rule as far as it is settled."""

    rule: Rule
    limits: tuple[Directive, ...]
    key: str


def nginx_config(
    rules: RuleSet,
    *,
    zone_size: str = "10m",
    prefix: str = "headgate",
    known: Mapping[str, str] | None = None,
) -> Exported:
    """A configuration of nginx for the rules of a file, and what it leaves out.

    zone_size  of each zone, as nginx writes it; a megabyte holds about 8,000 keys
    prefix     what the names of variables and zones begin with
    known      variables of nginx that tell the user and the like: {"user": "$remote_user"}
    """
    if not SIZE.fullmatch(zone_size):
        raise ValueError(f"a size of nginx is such as 10m, not {zone_size!r}")
    if not PREFIX.fullmatch(prefix):
        raise ValueError(f"a prefix is letters, digits and _, not {prefix!r}")
    return _Export(rules, zone_size, prefix, known or {}).exported()


class _Export:
    """One configuration in the making."""

    def __init__(self, rules: RuleSet, size: str, prefix: str, known: Mapping[str, str]) -> None:
        self._rules = rules
        self._size = size
        self._prefix = prefix
        self._variables = Variables(prefix, known)
        self._differs: list[tuple[str, str]] = []
        self._left_out: list[tuple[str, str]] = []

    def exported(self) -> Exported:
        written: list[Written] = []
        try:
            free = self._free()
        except Cannot as why:
            self._left_out += [(rule.name, str(why)) for rule in self._rules.rules]
        else:
            written = self._written(free)
        blocks = [HEAD.format(source=_plain(self._rules.source) or "rules")]
        blocks += [
            f"# not here: rule {_plain(name)}: {_plain(why)}" for name, why in self._left_out
        ]
        body = self._denied() + self._directives(written)
        blocks += [
            f"# not the same: rule {_plain(name)}: {_plain(why)}" for name, why in self._differs
        ]
        text = "\n".join([*blocks, "", *self._variables.blocks, "", *body]) + "\n"
        names = tuple(each.rule.name for each in written)
        return Exported(text, names, tuple(self._differs), tuple(self._left_out))

    def _written(self, free: list[Condition]) -> list[Written]:
        replaced = {name: rule.name for rule in self._rules.rules for name in rule.replaces}
        limiting = [rule for rule in self._rules.rules if not rule.exempt]
        shadow = all(rule.shadow for rule in limiting)
        written = []
        for rule in limiting:
            made = len(self._variables.blocks)
            try:
                if rule.name in replaced:
                    raise Cannot(f"rule {replaced[rule.name]} stands in for it at times")
                if rule.shadow and not shadow:
                    raise Cannot("nginx has shadow (a dry run) for all limits or for none")
                written.append(self._rule(rule, free))
            except Cannot as why:
                self._variables.forget(made)
                self._left_out.append((rule.name, str(why)))
        return written

    # -- who is free of limits

    def _free(self) -> list[Condition]:
        """What must hold for a request to be limited at all."""
        rules = self._rules
        found: list[Condition] = []
        if rules.allow is not None:
            found += [(variable, False) for variable in self._variables.listed(rules.allow)]
        if rules.deny is not None and rules.deny.networks:  # refused, and so not counted
            networks = type(rules.deny)(networks=rules.deny.networks)
            found += [(variable, False) for variable in self._variables.listed(networks)]
        for rule in rules.rules:
            if rule.exempt and not rule.shadow:
                try:
                    found.append((self._exempt(rule), False))
                except Cannot as why:
                    raise Cannot(f"rule {rule.name} exempts calls, and {why}") from None
        return found

    def _exempt(self, rule: Rule) -> str:
        conditions = self._variables.conditions(rule.match)
        for lists in (rule.allow, rule.deny):
            if lists is not None:
                raise Cannot("nginx cannot tell its lists from its match")
        if not conditions:
            raise Cannot("then nobody is limited")
        if len(conditions) == 1:
            return conditions[0][0]
        source, wanted = _joined(conditions)
        return self._variables.map(source, [("default", "0"), (wanted, "1")], "exempt")

    def _denied(self) -> list[str]:
        deny = self._rules.deny
        if deny is None:
            return []
        if deny.users or deny.origins:
            self._differs.append(("deny", "nginx refuses networks only, not users or origins"))
        return [*(f"deny {network_of(network)};" for network in deny.networks), ""]

    # -- rules

    def _rule(self, rule: Rule, free: list[Condition]) -> Written:
        for there, why in (
            (rule.deny is not None, "a list of those who never pass is for the whole file here"),
            (rule.plans is not None, "nginx knows no plans"),
            (bool(rule.hot), "nginx has one limit for all values of a key"),
            (bool(rule.busy), "nginx does not know whether another resource is busy"),
            (bool(rule.replaces), "nginx cannot leave out the rules that it replaces"),
            (rule.count != "all", "nginx counts before it knows how a request ends"),
            (rule.cost.source != "constant" or rule.cost.default != 1,
             "a request is one to nginx, whatever it costs"),
        ):  # fmt: skip
            if there:
                raise Cannot(why)
        limits = tuple(directive_of(limit, rule.wait) for limit in rule.limits)
        conditions = [*self._variables.conditions(rule.match), *free]
        if rule.allow is not None:
            conditions += [(each, False) for each in self._variables.listed(rule.allow)]
        key, there_are = self._variables.key(rule.key, rule.match.paths)
        conditions = list(dict.fromkeys([*conditions, *there_are]))
        if conditions:
            source, wanted = _joined(conditions)
            entries = [("default", '""'), (wanted, quoted(key))]
            key = self._variables.map(source, entries, f"key_{_slug(rule.name)}")
        self._differs += [(rule.name, limit.note) for limit in limits if limit.note]
        if rule.otherwise is not None:
            told = "nginx answers with its own page; error_page may name another"
            self._differs.append((rule.name, told))
        return Written(rule, limits, key)

    def _directives(self, written: Sequence[Written]) -> list[str]:
        lines: list[str] = []
        modules: dict[str, list[Written]] = {}
        names: set[str] = set()
        uses = []
        for each in written:
            lines.append(
                f"# rule {_plain(each.rule.name)}: {', '.join(map(str, each.rule.limits))}"
            )
            for place, limit in enumerate(each.limits):
                zone = f"{self._prefix}_{_slug(each.rule.name)}_{place}"
                if zone in names:  # two names may differ only in what a zone's cannot hold
                    zone = f"{zone}_{len(names)}"
                names.add(zone)
                key = each.key if each.key.startswith("$") else quoted(each.key)
                rate = f" rate={limit.rate}" if limit.rate else ""
                lines.append(f"{limit.module}_zone {key} zone={zone}:{self._size}{rate};")
                eq = "zone=" if limit.rate else ""
                uses.append(f"{limit.module} {eq}{zone}{limit.words};")
                modules.setdefault(limit.module, [])
                if each not in modules[limit.module]:
                    modules[limit.module].append(each)
        if uses:
            lines += ["", *uses]
        for module, some in modules.items():
            lines += self._manner(module, [each.rule for each in some])
        if len(modules) > 1:
            lines += ["# A request that limit_conn refuses has used its share of limit_req."]
        return lines

    def _manner(self, module: str, rules: Sequence[Rule]) -> list[str]:
        """How refusals of a module look: one way for all of them."""
        statuses = Counter(rule.status for rule in rules if 400 <= rule.status < 600)
        status = statuses.most_common(1)[0][0] if statuses else 429
        for rule in rules:
            if rule.status != status:
                told = f"the status of a refusal is {status}, as of other rules, not {rule.status}"
                self._differs.append((rule.name, told))
        level = Counter(LEVELS.get(rule.log_level, "info") for rule in rules).most_common(1)[0][0]
        lines = [f"{module}_status {status};", f"{module}_log_level {level};"]
        return [*lines, f"{module}_dry_run on;"] if rules[0].shadow else lines


def _joined(conditions: Sequence[Condition]) -> tuple[str, str]:
    """Conditions side by side, and how they read when all hold."""
    source = "".join(f"${{{variable[1:]}}}" for variable, _ in conditions)
    return quoted(source), quoted("".join("1" if wanted else "0" for _, wanted in conditions))


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower() or "rule"


def _plain(text: str) -> str:
    """A text in a comment: it cannot begin another line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
