-- debt: a token bucket that admits any cost while nothing is owed; who comes next waits.
--
-- Parameters and words: those of bucket.
-- needs draining

local function debt_fresh(now, capacity, window, quota, step, first, keep)
  if keep > 0 then -- the fourth: this key is written even if it is refused
    return now - now % step, first, 0, -1
  end
  return 0, first, 0, 0
end

local function debt_take(a, b, c, now, cost, max_wait, capacity, window, quota, step, first, keep)
  local at, missing = drained(a, b, now - now % step, window, quota)
  local over, wait = missing - capacity * window, 0
  if over > 0 then
    wait = at + (over + -over % quota) / quota
    wait = wait + -wait % step - now
    local most = (capacity > quota and capacity or quota) * window
    if wait > max_wait or wait > (most - most % quota) / quota then
      wait, missing = -1, b
      if a <= at then
        at = a
      end
    end
  end
  if wait >= 0 then
    missing = math.min(9007199254740991, missing + cost * window)
  end
  local full = at + math.ceil(missing / quota)
  return wait, at, missing, 0, full + -full % step - now + keep
end
-- more

-- The words, and how long they matter.
local function debt_words(at, missing, now, quota, step, keep)
  missing = math.min(9007199254740991, missing)
  local full = 0
  if missing > 0 then
    full = at + math.ceil(missing / quota)
    full = math.max(0, full + -full % step - now)
  end
  return at, missing, 0, full + keep
end

local function debt_charge(a, b, c, now, cost, capacity, window, quota, step, first, keep)
  local at, missing = drained(a, b, now - now % step, window, quota)
  return debt_words(at, missing + cost * window, now, quota, step, keep)
end

local function debt_refund(a, b, c, now, cost, at, capacity, window, quota, step, first, keep)
  local since, missing = drained(a, b, now - now % step, window, quota)
  local back = cost * window
  if at > now and missing > capacity * window + (at - since) * quota + back then
    -- Somebody has booked behind it; of what the last of them costs, one token is certain.
    back = math.min(back, window)
  end
  return debt_words(since, math.max(0, missing - back), now, quota, step, keep)
end

local function debt_left(a, b, c, now, capacity, window, quota, step)
  local _, missing = drained(a, b, now - now % step, window, quota)
  local free = capacity * window - missing
  return free >= 0 and math.floor(free / window) + 1 or 0
end
