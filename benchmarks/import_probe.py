"""A fresh process that imports one package: `python -P import_probe.py json` prints the cost.

It runs as a file, imports nothing of ours, and loads what it needs only after the clock stopped.
"""

import sys
import time

_before = {name.partition(".")[0] for name in sys.modules}
_start = time.perf_counter_ns()
__import__(sys.argv[1])
_spent = time.perf_counter_ns() - _start
_after = {name.partition(".")[0] for name in sys.modules}

if __name__ == "__main__":
    import json
    import threading

    others = {
        name
        for name in _after - _before - sys.stdlib_module_names - {sys.argv[1]}
        # What compiled modules make up for themselves comes from nowhere.
        if hasattr(sys.modules.get(name), "__path__") or hasattr(sys.modules.get(name), "__file__")
    }
    print(
        json.dumps(
            {
                "ns": _spent,
                "threads": threading.active_count() - 1,
                "third_party": sorted(others),
            }
        )
    )
