-- bucket: tokens flow in at a steady rate, up to a capacity; a call takes its cost. A leaky
-- bucket that does not queue is the same, its level being what is missing here.
--
-- Parameters: capacity, window in ticks, quota, step (ticks between refills), first (what is
-- missing from a new key's bucket), keep (ticks a full bucket is kept because a new one is not
-- full; else 0).
-- Words: an instant, what was missing from a full bucket then in 1/window tokens, 0.

local function bucket_fresh(now, capacity, window, quota, step, first, keep)
  if keep > 0 then -- the fourth: this key is written even if it is refused
    return now - now % step, first, 0, -1
  end
  return 0, first, 0, 0
end

local function bucket_take(a, b, c, now, cost, max_wait, capacity, window, quota, step, first, keep)
  local at, missing, wait = now, b, 0
  if step > 1 then
    at = now - now % step
  end
  local elapsed = at - a
  if elapsed >= 0 then
    missing = b - elapsed * quota
    if missing < 0 then
      missing = 0
    end
  elseif -elapsed <= window then -- the clock went back: it stands still
    at = a
  end
  missing = missing + cost * window
  local over = missing - capacity * window
  if over > 0 then
    wait = -1
    if max_wait > 0 and cost <= capacity then
      local ready = at + (over + -over % quota) / quota
      ready = ready + -ready % step - now
      local most = (capacity > quota and capacity or quota) * window
      if ready <= max_wait and ready <= (most - most % quota) / quota then
        wait = ready
      end
    end
    if wait < 0 then
      missing = b
      if a <= at or cost > capacity then
        at = a
      end
    end
  end
  local full = at + (missing + -missing % quota) / quota
  if step > 1 then
    full = full + -full % step
  end
  return wait, at, missing, 0, full - now + keep
end
-- more
-- needs draining

-- The words, and how long they matter.
local function bucket_words(at, missing, now, quota, step, keep)
  missing = math.min(9007199254740991, missing)
  local full = 0
  if missing > 0 then
    full = at + math.ceil(missing / quota)
    full = math.max(0, full + -full % step - now)
  end
  return at, missing, 0, full + keep
end

local function bucket_charge(a, b, c, now, cost, capacity, window, quota, step, first, keep)
  local at, missing = drained(a, b, now - now % step, window, quota)
  return bucket_words(at, missing + cost * window, now, quota, step, keep)
end

-- Of a booking, what can be given back: no more than nobody has booked behind it, and then in
-- whole tokens.
local function bucket_undone(back, behind, window)
  if behind <= 0 then
    return back
  end
  back = math.max(0, back - behind)
  return back - back % window
end

local function bucket_refund(a, b, c, now, cost, at, capacity, window, quota, step, first, keep)
  local since, missing = drained(a, b, now - now % step, window, quota)
  local back = cost * window
  if at > now then
    back = bucket_undone(back, missing - (capacity * window + (at - since) * quota), window)
  end
  return bucket_words(since, math.max(0, missing - back), now, quota, step, keep)
end

local function bucket_left(a, b, c, now, capacity, window, quota, step)
  local _, missing = drained(a, b, now - now % step, window, quota)
  return math.max(0, math.floor((capacity * window - missing) / window))
end
