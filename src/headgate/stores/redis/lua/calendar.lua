-- calendar: the natural hour, day, week, month or year of a time zone.
--
-- Parameters: quota; the begin and the finish, in ticks, of the window that the client thinks it
-- is. Scripts answer -1 where now lies outside it, so kernels never see that.
-- Words: the start of the window last used, what was used in it, 0.
-- needs windows

local function calendar_take(a, b, c, now, cost, max_wait, quota, begin, finish)
  local start, used, ends = window_rolled(a, b, now, begin, finish)
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

local function calendar_charge(a, b, c, now, cost, quota, begin, finish)
  return window_charged(a, b, now, cost, begin, finish)
end

local function calendar_refund(a, b, c, now, cost, at, quota, begin, finish)
  return window_refunded(a, b, now, cost, at, begin, finish)
end

local function calendar_left(a, b, c, now, quota, begin, finish)
  return window_left(a, b, now, quota, begin, finish)
end
