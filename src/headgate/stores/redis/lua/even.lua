-- even: calls at least window/quota apart, with no burst at all.
--
-- Parameters: quota, window in ticks.
-- Words: an instant, what was still owed then in 1/quota ticks, 0.

local function even_take(a, b, c, now, cost, max_wait, quota, window)
  if cost > quota then
    return -1, a, b, c, 0
  end
  local at, owed, wait, elapsed = now, b, 0, now - a
  if elapsed >= 0 then
    owed = b - elapsed * quota
  elseif -elapsed <= window then -- the clock went back: it stands still
    at = a
  end
  if owed > 0 then
    wait = at - now + (owed + -owed % quota) / quota
    if wait > max_wait or wait > window then
      if a <= at then
        at = a
      end
      return -1, at, b, c, at + (b + -b % quota) / quota - now
    end
  end
  -- Counted from the whole tick at which it passes, so no two are closer than they may be.
  owed = cost * window
  if wait > 0 then
    owed = owed + (wait + now - at) * quota
  end
  return wait, at, owed, 0, at + (owed + -owed % quota) / quota - now
end
-- more
-- needs draining

-- The words, and how long they matter.
local function even_words(at, owed, now, quota)
  owed = math.min(9007199254740991, owed)
  return at, owed, 0, owed > 0 and at + math.ceil(owed / quota) - now or 0
end

local function even_charge(a, b, c, now, cost, quota, window)
  local at, owed = drained(a, b, now, window, quota)
  return even_words(at, owed + cost * window, now, quota)
end

local function even_refund(a, b, c, now, cost, at, quota, window)
  local since, owed = drained(a, b, now, window, quota)
  local back = cost * window
  if at > now and owed > (at - since) * quota + back then
    back = 0 -- somebody has booked behind it, and keeps the distance
  end
  return even_words(since, math.max(0, owed - back), now, quota)
end

local function even_left(a, b, c, now, quota, window)
  local _, owed = drained(a, b, now, window, quota)
  return owed > 0 and 0 or 1
end
