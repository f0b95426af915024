-- gcra: one instant, the theoretical arrival time, says everything.
--
-- Parameters: capacity, window in ticks, quota.
-- Words: the instant it was written, and the arrival time in whole ticks and 1/quota ticks.
-- `ahead` is how far the arrival time lies ahead, in 1/quota ticks.

local function gcra_take(a, b, c, now, cost, max_wait, capacity, window, quota)
  if cost > capacity then -- before anything is multiplied
    return -1, a, b, c, 0
  end
  local at, ahead, wait = now, 0, 0
  if a > now then
    at = a
  end
  if b >= at then
    ahead = (b - at) * quota + c
  end
  if at - now > window then -- the clock went far back: all of it counts from now
    at = now
  end
  local over = ahead - (capacity - cost) * window
  if over > 0 then
    wait = at - now + (over + -over % quota) / quota
    local most = (capacity > quota and capacity or quota) * window
    most = (most - most % quota) / quota
    if wait > max_wait or wait > most then
      if a <= at then
        return -1, a, b, c, 0
      end
      wait, cost = -1, 0
    end
  end
  ahead = ahead + cost * window
  local rest = ahead % quota
  local arrival = at + (ahead - rest) / quota
  return wait, at, arrival, rest, arrival - now + (rest > 0 and 1 or 0)
end
-- more

-- How far ahead, and of which instant.
local function gcra_ahead(a, b, c, now, window, quota)
  local since = math.max(a, now)
  local ahead = b >= since and (b - since) * quota + c or 0
  return ahead, since - now <= window and since or now
end

-- The words, and how long they matter.
local function gcra_words(ahead, at, now, quota)
  ahead = math.min(9007199254740991, ahead)
  local rest = ahead % quota
  local arrival = math.min(9007199254740991, at + (ahead - rest) / quota)
  return at, arrival, rest, ahead > 0 and arrival - now + (rest > 0 and 1 or 0) or 0
end

local function gcra_charge(a, b, c, now, cost, capacity, window, quota)
  local ahead, at = gcra_ahead(a, b, c, now, window, quota)
  return gcra_words(ahead + cost * window, at, now, quota)
end

local function gcra_refund(a, b, c, now, cost, at, capacity, window, quota)
  local ahead, since = gcra_ahead(a, b, c, now, window, quota)
  local back = cost * window
  local behind = ahead - (capacity * window + (at - since) * quota)
  if at > now and behind > 0 then
    -- Only as far as nobody has booked behind it, and in whole calls.
    back = math.max(0, back - behind)
    back = back - back % window
  end
  return gcra_words(math.max(0, ahead - back), since, now, quota)
end

local function gcra_left(a, b, c, now, capacity, window, quota)
  local ahead = gcra_ahead(a, b, c, now, window, quota)
  return math.max(0, math.floor((capacity * window - ahead) / window))
end
