-- queue: a leaky bucket that delays what is above the rate, and refuses what it cannot hold.
--
-- Parameters: capacity, window in ticks, quota, free (what passes without delay, in 1/window).
-- Words: an instant, the level then in 1/window calls, the level as departures see it.
-- needs draining

-- The instant, the level, and the level as departures see it.
local function queue_levels(a, b, c, now, window, quota)
  local at, level = drained(a, b, now, window, quota)
  local _, late = drained(a, c, now, window, quota)
  return at, level, math.max(level, late)
end

local function queue_take(a, b, c, now, cost, max_wait, capacity, window, quota, free)
  local at, level, late = queue_levels(a, b, c, now, window, quota)
  local wait, added, full = 0, cost * window, capacity * window
  if late > free then
    wait = at - now + math.ceil((late - free) / quota)
  end
  if
    cost > capacity or level + added > full
    or (wait > 0 and (wait > max_wait or wait > 2 * (math.floor(full / quota) + capacity)))
  then
    if a <= at then
      at = a
    end
    return -1, at, b, c, math.max(0, at + math.ceil(math.max(b, c) / quota) - now)
  end
  if wait > 0 and quota < window then -- departures keep their distance in whole ticks
    late = (wait + now - at) * quota + free
  end
  late = late + added
  return wait, at, level + added, late, at + math.ceil(late / quota) - now
end
-- more

-- The words, and how long they matter.
local function queue_words(at, level, late, now, quota)
  level, late = math.min(9007199254740991, level), math.min(9007199254740991, late)
  local most = math.max(level, late)
  return at, level, late, most > 0 and math.max(0, at + math.ceil(most / quota) - now) or 0
end

local function queue_charge(a, b, c, now, cost, capacity, window, quota, free)
  local at, level, late = queue_levels(a, b, c, now, window, quota)
  local added = cost * window
  return queue_words(at, level + added, late + added, now, quota)
end

local function queue_refund(a, b, c, now, cost, at, capacity, window, quota, free)
  local since, level, late = queue_levels(a, b, c, now, window, quota)
  local back = cost * window
  if at > now and late > (at - since) * quota + free + back then
    back = 0 -- somebody stands behind it in the queue, and keeps the distance
  end
  return queue_words(since, math.max(0, level - back), math.max(0, late - back), now, quota)
end

local function queue_left(a, b, c, now, capacity, window, quota, free)
  local _, level, late = queue_levels(a, b, c, now, window, quota)
  if late > free then
    return 0
  end
  local undelayed = math.floor((free - late) / window) + 1
  return math.min(undelayed, math.floor((capacity * window - level) / window))
end
