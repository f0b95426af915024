"""How long importing takes: fresh processes, the packages in turn, the median of several."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypedDict

_PROBE = Path(__file__).with_name("import_probe.py")

Package = tuple[str, dict[str, str]]
"""What is imported, and what its process finds in its environment."""


class ImportCost(TypedDict):
    """What importing one package brings along."""

    ns: float
    threads: int
    third_party: list[str]


def _probe(package: Package, bytecode: str) -> ImportCost | None:
    """Import a package in a fresh process, with compiled files in a folder of our own."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": bytecode} | package[1]
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-P", str(_PROBE), package[0]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return None
    cost: ImportCost = json.loads(done.stdout)
    return cost


def measure(packages: Mapping[str, Package], rounds: int) -> dict[str, ImportCost]:
    """Median import cost of each package; one that cannot be imported is left out."""
    with TemporaryDirectory() as bytecode:
        # The first round compiles and is not counted: as after an installation, all is compiled.
        costs = {
            name: cost for name, package in packages.items() if (cost := _probe(package, bytecode))
        }
        times: dict[str, list[float]] = {name: [] for name in costs}
        for _ in range(rounds):
            for name in costs:
                if again := _probe(packages[name], bytecode):
                    times[name].append(again["ns"])
    for name, cost in costs.items():
        cost["ns"] = median(times[name] or [cost["ns"]])
    return costs
