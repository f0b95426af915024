-- counting: what all windows do with what they hold.
-- needs windows

local function window_charged(a, b, now, cost, begin, finish)
  local start, used, ends = window_rolled(a, b, now, begin, finish)
  used = math.min(9007199254740991, used + cost)
  return start, used, 0, used > 0 and ends - now or 0
end

local function window_refunded(a, b, now, cost, at, begin, finish)
  local start, used, ends = window_rolled(a, b, now, begin, finish)
  if (start <= at and at < ends) or (start > now and at >= now) then -- or: it stands still
    used = math.max(0, used - cost)
  end
  return start, used, 0, used > 0 and ends - now or 0
end

local function window_left(a, b, now, quota, begin, finish)
  local _, used = window_rolled(a, b, now, begin, finish)
  return math.max(0, quota - used)
end
