"""The generic cell rate algorithm: one number a counter, the moment at which its bucket is full again.

ITU-T I.371, annex A, in the form of virtual scheduling. `TAKE` is the same in Lua, by the clock of the Redis server;
a test holds the two together.
"""

from __future__ import annotations

import math

from hindsight_core.cache import Allowance, Rate

_SLACK = 1e-6  # what is full but for rounding is full

TAKE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local burst, per_second, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local stored = redis.pcall('GET', KEYS[1])
local full_at = type(stored) == 'string' and tonumber(stored) or now
full_at = math.min(math.max(full_at, now), now + burst / per_second)
local after = full_at + cost / per_second
local wait = after - burst / per_second - now
if wait > 0.000001 then
  return {0, string.format('%.6f', full_at - now), string.format('%.6f', wait)}
end
redis.call('SET', KEYS[1], string.format('%.6f', after), 'PX', math.ceil((after - now) * 1000) + 1)
return {1, string.format('%.6f', after - now), '0'}
"""


def take(full_at: float, now: float, rate: Rate, cost: int) -> tuple[float, Allowance]:
    """The counter afterwards, and what it allows; `full_at` and `now` are seconds of one clock."""
    full_at = min(max(full_at, now), now + rate.burst / rate.per_second)
    after = full_at + cost / rate.per_second
    wait = after - rate.burst / rate.per_second - now
    if wait > _SLACK:
        return full_at, allowance(rate, allowed=False, until_full=full_at - now, wait=wait)
    return after, allowance(rate, allowed=True, until_full=after - now, wait=0.0)


def allowance(rate: Rate, *, allowed: bool, until_full: float, wait: float) -> Allowance:
    """The answer for a bucket that is full in `until_full` seconds."""
    remaining = math.floor(rate.burst - until_full * rate.per_second + _SLACK)
    return Allowance(allowed=allowed, remaining=max(0, remaining), retry_after=wait)


def check(rate: Rate, cost: int) -> None:
    """`ValueError` for a cost that could never be allowed."""
    if not 1 <= cost <= rate.burst:
        raise ValueError(f"a cost of {cost} is never allowed by a burst of {rate.burst}")
