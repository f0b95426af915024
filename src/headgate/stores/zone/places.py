"""Places: which word of a zone means what."""

from __future__ import annotations

# -- the header: what is fixed when a zone is made
MAGIC, VERSION, FORM, SIZE, ENTRIES, BUCKETS, CHUNKS, OPTIONS = range(8)
HASH_KEY, OFFSET, BOOT, PIDS, LATEST = 8, 10, 11, 13, 14
MUTEX = 32  # on cache lines of its own, with room for 256 bytes
# -- what changes without the journal
PENDING, HOLDER, WAITING, RECOVERIES, HAND = 64, 65, 66, 67, 68
# -- what changes with it
FREE, BUMP, USED, KEYS, EVICTED, DENIED, TOKENS, OWN = range(72, 80)
RESERVED, EARLIEST, FIRST, LAST, RULES = range(80, 85)
JOURNAL = 512  # the first word after the header page

# -- a chunk's first word: its kind, the next chunk, and for a key how many reservations it has
IS_FREE, IS_KEY, IS_OWN, IS_RESERVED, IS_RULE, IS_DATA = range(6)
KIND, NEXT, LINK, COUNT = 15, 4, (1 << 32) - 1, 36
NODE, PAYLOAD = 8, 7
"""The words of a chunk, and those of them that hold data."""
