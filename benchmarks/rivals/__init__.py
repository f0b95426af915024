"""The limiters that are compared, one small module each.

A rival module offers ALGORITHMS (our algorithm name -> a factory of a fresh limiter's hit),
KEYED, ASYNC, LOOP (how an answer is read) and `allowed(answer)`. A factory takes an amount and
a period in seconds; its hit takes a key when KEYED is true and nothing otherwise.

headgate is here twice, in its compiled form and in its pure one.
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
    compiled: bool | None = None
    """Which form of headgate it is; None for everybody else."""

    @property
    def ours(self) -> bool:
        return self.compiled is not None

    @property
    def environment(self) -> dict[str, str]:
        """What its processes have to find in their environment."""
        return {"HEADGATE_PURE": "0" if self.compiled else "1"} if self.ours else {}

    @property
    def installed(self) -> bool:
        return util.find_spec(self.package) is not None

    @property
    def version(self) -> str | None:
        try:
            return metadata.version(self.package if self.ours else self.name)
        except metadata.PackageNotFoundError:
            return "from source" if self.installed else None

    def load(self) -> Rival:
        return cast(Rival, import_module(f"benchmarks.rivals.{self.module}"))

    def check_form(self) -> None:
        """Refuse to measure one form of headgate under the name of the other."""
        if self.ours:
            form = import_module(self.package).compiled
            if bool(form) is not self.compiled:
                raise SystemExit(f"{self.name}: headgate is {form!r}")


ENTRIES = (
    Entry("headgate", "headgate_", "headgate", compiled=True),
    Entry("headgate-pure", "headgate_", "headgate", compiled=False),
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
            if entry.compiled:
                entry.check_form()
            loaded[entry.name] = entry.load()
        except ImportError as error:
            missing[entry.name] = f"cannot be imported: {error.msg.partition(' (')[0]}"
        except SystemExit as error:
            missing[entry.name] = f"not measured: {str(error).partition(': ')[2]}"
    return loaded, missing
