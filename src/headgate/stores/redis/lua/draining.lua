-- draining: what is missing, owed or in a bucket grows less by `quota` each tick.

-- What is left of it now, and the instant that is true of.
local function drained(at, level, now, window, quota)
  local elapsed = now - at
  if elapsed >= 0 then
    return now, math.max(0, level - elapsed * quota)
  end
  if -elapsed <= window then -- the clock went back: it stands still
    return at, level
  end
  return now, level
end
