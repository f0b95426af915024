"""The limiters that are compared, one small module each.

A rival module offers ALGORITHMS (our algorithm name -> a factory of a fresh limiter's hit),
KEYED, ASYNC, LOOP (how an answer is read) and `allowed(answer)`. A factory takes an amount and
a period in seconds; its hit takes a key when KEYED is true and nothing otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, metadata, util
from typing import Protocol, cast

from benchmarks.loops import Factory, Loop


class Rival(Protocol):
    """What a rival module offers."""

    ALGORITHMS: Mapping[str, Factory]
    KEYED: bool
    ASYNC: bool
    LOOP: Loop

    def allowed(self, answer: object, /) -> bool: ...


@dataclass(frozen=True)
class Entry:
    """Where a rival lives: our module for it, its package, its distribution."""

    name: str
    module: str
    package: str

    @property
    def installed(self) -> bool:
        return util.find_spec(self.package) is not None

    @property
    def version(self) -> str | None:
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return "from source" if self.installed else None

    def load(self) -> Rival:
        return cast(Rival, import_module(f"benchmarks.rivals.{self.module}"))


ENTRIES = (
    Entry("headgate", "headgate_", "headgate"),
    Entry("limits", "limits_", "limits"),
    Entry("throttled-py", "throttled_py", "throttled"),
    Entry("pyrate-limiter", "pyrate", "pyrate_limiter"),
    Entry("token-bucket", "token_bucket_", "token_bucket"),
    Entry("aiolimiter", "aiolimiter_", "aiolimiter"),
    Entry("rush", "rush_", "rush"),
    Entry("ratelimit", "ratelimit_", "ratelimit"),
)
BY_NAME = {entry.name: entry for entry in ENTRIES}


def load_all() -> tuple[dict[str, Rival], dict[str, str]]:
    """The rivals that can be imported, and for each other one what is the matter."""
    loaded, missing = {}, {}
    for entry in ENTRIES:
        if not entry.installed:
            missing[entry.name] = "not installed"
            continue
        try:
            loaded[entry.name] = entry.load()
        except ImportError as error:
            missing[entry.name] = f"cannot be imported: {error.msg.partition(' (')[0]}"
    return loaded, missing
