"""How much memory this process holds, as the kernel counts it."""

import os
from pathlib import Path


def resident_bytes() -> int:
    """Bytes of this process that are in memory now; Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
