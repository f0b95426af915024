"""The build: what pyproject.toml cannot say, which is how the compiled form is made.

With a C compiler the plain Python files named below are compiled as they are, with the C types
of the .pxd files in src/headgate/_native; without one headgate is installed as pure Python.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src/headgate")
NATIVE = SOURCE / "_native"
# Compiled from the same source as the pure form.
SHARED = (
    "algorithms/base",
    "algorithms/concurrency",
    "algorithms/even",
    "algorithms/fixed_window",
    "algorithms/gcra",
    "algorithms/leaky_bucket",
    "algorithms/sliding_cells",
    "algorithms/sliding_log",
    "algorithms/sliding_window",
    "algorithms/token_bucket",
    "algorithms/warm_up",
    "decision",
    "resilience/breaker/core",
    "resilience/breaker/faces",
    "resilience/breaker/machine",
    "resilience/breaker/windows",
    "stores/cell",
    "stores/local",
    "stores/zone/answers",
    "stores/zone/engine",
    "stores/zone/places",
    "stores/zone/registry",
    "stores/zone/reservations",
    "stores/zone/room",
    "stores/zone/store",
    "stores/zone/table",
)
# Written for C alone.
ALONE = (
    "algorithms/packing",
    "near",
    "quick",
    "reclaim",
    "record",
    "table",
    "zonelock",
    "zonequick",
)
# Which sources those stand in for.
STANDS_IN = {
    "algorithms.packing": "algorithms.packing",
    "door": "quick",
    "record": "record",
    "stores.near": "near",
    "stores.quick": "quick",
    "stores.reclaim": "reclaim",
    "stores.table": "table",
}
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # an int of Python has no bounds; C types stand in the .pxd
    "binding": False,
    "embedsignature": True,  # so that help() and inspect show what a call takes
    "embedsignature.format": "clinic",
}
# Where functions are made for users: those have a name and a signature, and bind to objects.
BOUND = {"headgate._native.resilience.breaker.faces"}


class optional_build_ext(build_ext):  # noqa: N801 # named as setuptools names its commands
    """Builds what can be built; says in one line why headgate stays pure Python otherwise."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        target = Path("src" if self.inplace else self.build_lib) / "headgate/_native/built.py"
        target.unlink(missing_ok=True)
        if os.environ.get("HEADGATE_PURE", "0") not in ("", "0"):
            self.extensions = []
            return
        try:
            from Cython import __version__ as cython
            from Cython.Build import cythonize

            self.extensions = [
                translated
                for extension in self.extensions
                for translated in cythonize(
                    [extension],
                    include_path=["src"],
                    build_dir="build/c",
                    force=True,  # a .pxd in another folder is not seen to have changed
                    compiler_directives=DIRECTIVES | {"binding": extension.name in BOUND},
                    quiet=True,
                )
            ]
            for extension in self.extensions:
                extension._needs_stub = False  # setuptools' own mark for plain extensions
            super().run()
        except Exception as error:  # whatever a missing or odd compiler may raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            print(f"headgate: pure Python, not compiled: {reason}", file=sys.stderr)
            self.extensions = []
        else:
            target.write_text(built(cython))


def built(cython: str) -> str:
    """What the compiled form says of itself."""
    names = {name.replace("/", "."): name.replace("/", ".") for name in SHARED} | STANDS_IN
    return (
        '"""How the compiled form was made; written by the build."""\n\n'
        f"CYTHON = {cython!r}\n"
        f"DIGEST = {digest()!r}\n"
        f"FIRST = {'algorithms.base'!r}\n"
        f"MODULES = {names!r}\n"
    )


def digest() -> str:
    """A digest of every source of the compiled form."""
    files = [SOURCE / f"{name}.py" for name in SHARED]
    files += sorted([*NATIVE.rglob("*.pyx"), *NATIVE.rglob("*.pxd")])
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.read_bytes())
    return whole.hexdigest()


def extensions() -> list[Extension]:
    """One extension for each module."""
    flags = os.environ.get("HEADGATE_CFLAGS", "").split()
    return [
        Extension(
            f"headgate._native.{name.replace('/', '.')}",
            [str(SOURCE / f"{name}.py") if name in SHARED else str(NATIVE / f"{name}.pyx")],
            define_macros=[("CYTHON_VECTORCALL_TPNEW", "0")],  # the plain way to make an object
            extra_compile_args=["-O2", "-g0", "-Wno-maybe-uninitialized", *flags],
            extra_link_args=flags,
        )
        for name in (*SHARED, *ALONE)
    ]


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": optional_build_ext})
