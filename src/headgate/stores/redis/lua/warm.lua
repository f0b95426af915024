-- warm: after a rest the rate is low and rises to its full height while it is used.
--
-- Parameters: quota, window in ticks, cold (the factor), span (the warm-up time in ticks).
-- Words: an instant, the time still owed then in 1/(2(1+cold)quota) ticks, the warmth: what is
-- missing from full coldness, of which one permit is 2(1+cold)window.

-- floor(u * v * k / d) for numbers whose product is beyond 2^53. The quotient is estimated, and
-- the exact remainder, in limbs of 20 bits, puts the estimate right. `low` is v % 2^20, for a v
-- that may have lost its last bit.
local function warm_muldiv(u, v, low, k, d)
  local B = 1048576
  local w0 = (k % B) * low % B
  local w = math.floor((v * k - w0) / B + 0.5)
  local w1 = w % B
  local w2 = (w - w1) / B
  local u0 = u % B
  local u1 = (u - u0) / B % B
  local u2 = ((u - u0) / B - u1) / B
  local d0 = d % B
  local d1 = (d - d0) / B % B
  local d2 = ((d - d0) / B - d1) / B
  local q = math.floor(u * (v * k) / d)
  for _ = 1, 4 do
    local q0 = q % B
    local q1 = (q - q0) / B % B
    local q2 = ((q - q0) / B - q1) / B
    local r = u2 * w2 - q2 * d2
    r = r * B + (u2 * w1 + u1 * w2) - (q2 * d1 + q1 * d2)
    r = r * B + (u2 * w0 + u1 * w1 + u0 * w2) - (q2 * d0 + q1 * d1 + q0 * d2)
    r = r * B + (u1 * w0 + u0 * w1) - (q1 * d0 + q0 * d1)
    r = r * B + u0 * w0 - q0 * d0
    if r >= 0 and r < d then
      break
    end
    q = q + math.floor(r / d)
  end
  return q
end

-- The state brought up to now: debts paid first, then cooling.
local function warm_rested(at, owed, warmth, now, quota, window, cold)
  local elapsed = now - at
  if elapsed < 0 then
    return -elapsed <= window and at or now, owed, warmth
  end
  local m, scale = 2 * (1 + cold), 2 * (1 + cold) * quota
  local left = owed - elapsed * scale
  if left >= 0 then
    return now, left, warmth
  end
  if warmth > 0 then
    -- floor(-left * (5 + cold) / m), in ticks of rest and what the last of the debt took of one
    local rest = owed % scale
    local ticks = elapsed - (owed - rest) / scale
    local less = rest % m
    less = (rest - less) / m * (5 + cold) + math.ceil(less * (5 + cold) / m)
    warmth = math.max(0, warmth - (ticks * quota * (5 + cold) - less))
  end
  return now, 0, warmth
end

-- The time that `cost` permits take, and how many stored ones they use up.
local function warm_price(warmth, cost, quota, window, cold, span)
  local whole = span * quota
  local stored = whole * (5 + cold) - warmth
  local wanted = cost * 2 * (1 + cold) * window
  local spent = math.min(wanted, stored)
  local above = stored - whole * (1 + cold)
  local extra = 0
  if above > 0 and cold > 1 then
    local steep = math.min(above, spent)
    local sum = 2 * above - steep
    local product = steep * (cold - 1) * sum
    if product < 9007199254740992 then
      extra = math.floor(product / (8 * whole))
    else
      local low = (2 * (above % 1048576) - steep) % 1048576
      extra = warm_muldiv(steep, sum, low, cold - 1, 8 * whole)
    end
  end
  return wanted + extra, spent
end

-- How long the words matter: until all is paid, and cold again.
local function warm_lives(at, owed, warmth, now, quota, cold)
  local m, rest = 2 * (1 + cold), warmth % (5 + cold)
  local cooling = (warmth - rest) / (5 + cold) * m + math.ceil(rest * m / (5 + cold))
  if owed + cooling == 0 then
    return 0
  end
  return math.max(0, at - now + math.ceil((owed + cooling) / (m * quota)))
end

local function warm_take(a, b, c, now, cost, max_wait, quota, window, cold, span)
  local at, owed, warmth = warm_rested(a, b, c, now, quota, window, cold)
  local wait = 0
  if owed > 0 then
    wait = at - now + math.ceil(owed / (2 * (1 + cold) * quota))
    if wait > max_wait or wait > window then
      if a <= at then
        at = a
      end
      return -1, at, b, c, warm_lives(at, b, c, now, quota, cold)
    end
  end
  local time, spent = warm_price(warmth, cost, quota, window, cold, span)
  owed, warmth = math.min(9007199254740991, owed + time), warmth + spent
  return wait, at, owed, warmth, warm_lives(at, owed, warmth, now, quota, cold)
end
-- more

local function warm_charge(a, b, c, now, cost, quota, window, cold, span)
  local at, owed, warmth = warm_rested(a, b, c, now, quota, window, cold)
  local time, spent = warm_price(warmth, cost, quota, window, cold, span)
  owed, warmth = math.min(9007199254740991, owed + time), warmth + spent
  return at, owed, warmth, warm_lives(at, owed, warmth, now, quota, cold)
end

local function warm_refund(a, b, c, now, cost, at, quota, window, cold, span)
  local since, owed, warmth = warm_rested(a, b, c, now, quota, window, cold)
  local scale = 2 * (1 + cold)
  local before = math.max(0, warmth - cost * scale * window)
  local time = warm_price(before, cost, quota, window, cold, span)
  if not (at > now and owed > (at - since) * scale * quota + time) then
    owed, warmth = math.max(0, owed - time), before -- else somebody has booked behind it
  end
  return since, owed, warmth, warm_lives(since, owed, warmth, now, quota, cold)
end

local function warm_left(a, b, c, now, quota, window, cold)
  local _, owed = warm_rested(a, b, c, now, quota, window, cold)
  return owed > 0 and 0 or 1
end
