-- sliding: this window's count plus the part of the last one that still reaches in.
--
-- Parameters: quota, window in ticks, most (the largest count).
-- Words: the start of the window last used, its count, the count of the window before.

-- The present window: its start and counts, and how much of it has passed.
local function sliding_rolled(start, count, before, now, window)
  local begin = now - now % window
  if start == begin then
    return begin, count, before, now - begin
  end
  if start < begin then
    return begin, 0, begin - start == window and count or 0, now - begin
  end
  if start - now <= window then -- the clock went back: it stands still
    return start, count, before, 0
  end
  return begin, count, before, now - begin
end

local function sliding_take(a, b, c, now, cost, max_wait, quota, window)
  local start, count, before, elapsed = a, b, c, now - a
  if elapsed < 0 or elapsed >= window then -- the window last used is not the present one
    start, count, before, elapsed = sliding_rolled(a, b, c, now, window)
  end
  if cost > quota then
    return -1, a, b, c, 0
  end
  count = count + cost
  if count * window + before * (window - elapsed) <= quota * window then
    return 0, start, count, before, start - now + 2 * window
  end
  if a - now <= window then
    return -1, a, b, c, 0
  end
  return -1, start, count - cost, before, start - now + 2 * window
end
-- more

local function sliding_words(start, count, before, now, window)
  local lives = 0
  if count > 0 or before > 0 then
    lives = start - now + (count > 0 and 2 * window or window)
  end
  return start, count, before, lives
end

local function sliding_charge(a, b, c, now, cost, quota, window, most)
  local start, count, before = sliding_rolled(a, b, c, now, window)
  return sliding_words(start, math.min(most, count + cost), before, now, window)
end

local function sliding_refund(a, b, c, now, cost, at, quota, window)
  local start, count, before = sliding_rolled(a, b, c, now, window)
  if at >= start or (start > now and at >= now) then -- or: the clock went back and stands still
    count = math.max(0, count - cost)
  elseif at >= start - window then
    before = math.max(0, before - cost)
  end
  return sliding_words(start, count, before, now, window)
end

local function sliding_left(a, b, c, now, quota, window)
  local _, count, before, elapsed = sliding_rolled(a, b, c, now, window)
  local free = (quota - count) * window - before * (window - elapsed)
  return math.max(0, math.floor(free / window))
end
