-- fixed: windows aligned to the epoch, or to an anchor before which nothing passes.
--
-- Parameters: quota, window in ticks, anchor.
-- Words: the start of the window last used, what was used in it, 0.
-- needs windows

local function fixed_take(a, b, c, now, cost, max_wait, quota, window, anchor)
  if b > 0 and anchor <= a and a <= now and now < a + window then -- still in the window last used
    local used = b + cost
    if used <= quota then
      return 0, a, used, 0, a + window - now
    end
    return -1, a, b, c, 0
  end
  local begin = now - (now - anchor) % window
  local start, used, ends
    = window_rolled(a, b, now, begin > 0 and begin or 0, begin + window)
  if used + cost <= quota and now >= anchor then
    return 0, start, used + cost, 0, ends - now
  end
  if a < ends then
    return -1, a, b, c, 0
  end
  return -1, start, used, 0, used > 0 and ends - now or 0
end
-- more
-- needs counting

local function fixed_charge(a, b, c, now, cost, quota, window, anchor)
  local begin = now - (now - anchor) % window
  return window_charged(a, b, now, cost, math.max(0, begin), begin + window)
end

local function fixed_refund(a, b, c, now, cost, at, quota, window, anchor)
  local begin = now - (now - anchor) % window
  return window_refunded(a, b, now, cost, at, math.max(0, begin), begin + window)
end

local function fixed_left(a, b, c, now, quota, window, anchor)
  if now < anchor then
    return 0
  end
  local begin = now - (now - anchor) % window
  return window_left(a, b, now, quota, math.max(0, begin), begin + window)
end
