"""Values that have a version: the later one stays, in whatever order they come.

`ADVANCE` is the same in Lua, in one atomic step; the contract tests hold the two together.
"""

from __future__ import annotations

import re

ADVANCE = """
local kept = redis.pcall('GET', KEYS[1])
local version = type(kept) == 'string' and tonumber(string.match(kept, '^(%d+):'))
if not version or version <= tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1] .. ':' .. ARGV[2], 'PX', ARGV[3])
end
"""

# So many digits are the same number in Lua, whose numbers are floats.
_PACKED = re.compile(rb"([0-9]{1,15}):(.*)", re.DOTALL)


def packed(version: int, value: bytes) -> bytes:
    """A value behind its version."""
    return b"%d:%b" % (version, value)


def unpacked(kept: bytes) -> tuple[int, bytes] | None:
    """Version and value; None for what is neither."""
    found = _PACKED.fullmatch(kept)
    return None if found is None else (int(found[1]), found[2])
