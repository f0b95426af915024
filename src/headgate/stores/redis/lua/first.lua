-- first: a window that begins with the first hit and leaves no trace when it ends.
--
-- Parameters: quota, window in ticks.
-- Words: the start of the window last used, what was used in it, 0.
-- needs windows

local function first_take(a, b, c, now, cost, max_wait, quota, window)
  if b > 0 and a <= now and now < a + window then -- still in the window last used
    local used = b + cost
    if used <= quota then
      return 0, a, used, 0, a + window - now
    end
    return -1, a, b, c, 0
  end
  local start, used, ends = window_rolled(a, b, now, now, now + window)
  if used + cost <= quota then
    return 0, start, used + cost, 0, ends - now
  end
  if a < ends then
    return -1, a, b, c, 0
  end
  return -1, start, used, 0, used > 0 and ends - now or 0
end
-- more
-- needs counting

local function first_begin(a, b, now, window)
  return b > 0 and a <= now and now < a + window and a or now
end

local function first_charge(a, b, c, now, cost, quota, window)
  local begin = first_begin(a, b, now, window)
  return window_charged(a, b, now, cost, begin, begin + window)
end

local function first_refund(a, b, c, now, cost, at, quota, window)
  local begin = first_begin(a, b, now, window)
  return window_refunded(a, b, now, cost, at, begin, begin + window)
end

local function first_left(a, b, c, now, quota, window)
  local begin = first_begin(a, b, now, window)
  return window_left(a, b, now, quota, begin, begin + window)
end
