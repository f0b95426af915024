-- windows: a count that starts again at each boundary.

-- The window to count in, what it holds, and its end; `begin` and `finish` are of the one that
-- holds `now`.
local function window_rolled(start, used, now, begin, finish)
  if start == begin then
    return begin, used, finish
  end
  if start < begin or used == 0 then
    return begin, 0, finish
  end
  -- The clock went back. Up to a window it stands still; further, the count is kept here.
  if start - now <= finish - begin then
    return start, used, start + finish - begin
  end
  return begin, used, finish
end
