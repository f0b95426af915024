-- log: every hit remembered, so no span of a window ever holds more than the limit.
--
-- Parameters: quota, window in ticks.
--
-- Body: '<I4i7i7i7B' = tag, the latest instant seen (before which this log does not go back),
-- total, base, 16 * width + priced; then the events, oldest first: what each is later than the
-- base in `width` bytes and, only once one of them is not 1, its cost in `priced` bytes (0: all
-- are 1). Hits of the same instant are one event. A log without events is no body at all.
-- The base stays as events leave, so that nothing is rewritten; once an event lies too far from
-- it for `width` bytes, all are written anew from the first that is left.
--
-- What stands before the line `-- rest` is enough for most takes.
--
-- State s: what the body says (`rows` are the events, `stride` bytes each), `now`, and `changed`:
-- whether there is something to write. A key that has no body does not change by time.

-- A take of 1 in a log of ones of a plain value, in one step: the new body, wait, view, lives.
-- Nothing if it is not that simple, or of another shape: then the functions below say what becomes
-- of it.
local function log_hit(body, now, cost, tag, quota, window)
  if #body < 28 then
    return -- too short for a log
  end
  local shape, seen, total, base, widths = struct.unpack('<I4i7i7i7B', body)
  local width, size = widths / 16, #body
  if shape ~= tag or cost ~= 1 or width % 1 > 0 or now < seen then
    return
  end
  local form, late, edge, from = '<I' .. width, now - base, now - base - window, 27
  local last = struct.unpack(form, body, size - width + 1)
  if last == late or last <= edge or late >= 256 ^ width then
    return
  end
  while struct.unpack(form, body, from) <= edge do
    from, total = from + width, total - 1
    if from > 250 then
      return -- many have left: look for the first that stays
    end
  end
  local over, leaves = total + 1 - quota, 0
  if over >= 0 then -- the next does not fit
    leaves = base + struct.unpack(form, body, from + math.max(0, over - 1) * width) + window
  end
  if over > 0 then
    body = struct.pack('<I4i7i7i7B', tag, now, total, base, widths) .. body:sub(from)
    return body, -1, total, leaves, base + last, base + last + window - now
  end
  total = total + 1
  body = struct.pack('<I4i7i7i7B', tag, now, total, base, widths) .. body:sub(from)
    .. struct.pack(form, late)
  return body, 0, total, leaves, now, window
end
-- rest

local LOG_MOST = 9007199254740991

local function log_open(body, tag, quota, window)
  local s = {
    tag = tag, quota = quota, window = window, known = false, changed = false,
    seen = 0, total = 0, base = 0, width = 4, priced = 0, stride = 4, rows = '', now = 0,
  }
  if body and body ~= '' then
    local _, widths
    _, s.seen, s.total, s.base, widths = struct.unpack('<I4i7i7i7B', body)
    s.priced = widths % 16
    s.width = (widths - s.priced) / 16
    s.stride = s.width + s.priced
    s.rows = body:sub(27)
    s.known = true
  end
  return s
end

-- The instant of the event at a place, which begins with 0.
local function log_at(s, place)
  return s.base + struct.unpack('<I' .. s.width, s.rows, place * s.stride + 1)
end

-- The cost of the event at a place.
local function log_cost(s, place)
  if s.priced == 0 then
    return 1
  end
  return (struct.unpack('<I' .. s.priced, s.rows, place * s.stride + s.width + 1))
end

-- The first place from `low` on whose event is later than an instant. Looks near `low` first:
-- most often few events have left.
local function log_after(s, instant, low)
  local high, step = #s.rows / s.stride, 1
  while low + step <= high and log_at(s, low + step - 1) <= instant do
    low = low + step
    step = step * 2
  end
  high = math.min(high, low + step - 1)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if log_at(s, middle) <= instant then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Give every event a cost of its own, in cells that hold one as large as this.
local function log_price(s, largest)
  local before = s.priced
  if before > 0 and largest < 256 ^ before then
    return
  end
  local wide = largest < 256 and 1 or largest < 65536 and 2 or largest < 4294967296 and 4 or 7
  local more = before > 0 and ('\0'):rep(wide - before) or '\1' .. ('\0'):rep(wide - 1)
  s.rows = s.rows:gsub(('.'):rep(s.stride), '%0' .. more)
  s.priced, s.stride = wide, s.width + wide
end

-- The bytes that hold what an event can be later than another, with room for a base that stays
-- while events leave.
local function log_width(window)
  local width = 2
  while 256 ^ width < window * 1.125 do
    width = width + 1
  end
  return width
end

-- Write all events anew from the first on. They span less than a window.
local function log_rebase(s)
  local base, width = log_at(s, 0), log_width(s.window)
  local pieces, form = {}, '<I' .. width
  for place = 0, #s.rows / s.stride - 1 do
    local from = place * s.stride
    pieces[place + 1] = struct.pack(form, log_at(s, place) - base)
      .. s.rows:sub(from + s.width + 1, from + s.stride)
  end
  s.base, s.width, s.stride, s.rows = base, width, width + s.priced, table.concat(pieces)
end

-- The clock went far back: no event is later than now.
local function log_clamp(s, now)
  local place = log_after(s, now, 0)
  s.base = math.min(s.base, now)
  local tail, dots = s.rows:sub(place * s.stride + 1), ('.'):rep(s.width)
  local instant = struct.pack('<I' .. s.width, now - s.base):gsub('%%', '%%%%')
  if s.priced > 0 then
    tail = tail:gsub(dots .. '(' .. ('.'):rep(s.priced) .. ')', instant .. '%1')
  else
    tail = tail:gsub(dots, instant)
  end
  s.rows = s.rows:sub(1, place * s.stride) .. tail
end

local function log_roll(s, now)
  s.now = now
  if s.seen > now then
    if s.seen - now <= s.window then
      now = s.seen -- the clock went back: it stands still
    else
      log_clamp(s, now)
    end
  end
  if s.seen ~= now then
    s.seen, s.changed = now, s.changed or s.known
  end
  if s.total == 0 or log_at(s, 0) > now - s.window then
    return
  end
  local gone = log_after(s, now - s.window, 0)
  local total = s.total
  if s.priced == 0 then
    total = total - gone
  else
    for place = 0, gone - 1 do
      total = total - log_cost(s, place)
    end
  end
  s.total, s.changed, s.rows = total, true, s.rows:sub(gone * s.stride + 1)
  if s.priced > 0 and total == #s.rows / s.stride then -- what is left are ones
    s.rows = s.rows:gsub('(' .. ('.'):rep(s.width) .. ')' .. ('.'):rep(s.priced), '%1')
    s.priced, s.stride = 0, s.width
  end
end

local function log_fits(s, now, cost)
  return s.total + cost <= s.quota and 0 or -1
end

local function log_put(s, now, cost)
  cost = math.min(cost, LOG_MOST - s.total)
  if cost == 0 then
    return
  end
  now = math.max(now, s.seen)
  s.seen, s.changed = now, true
  local last = #s.rows / s.stride - 1
  if last >= 0 and log_at(s, last) == now then
    local held = log_cost(s, last) + cost
    log_price(s, held)
    s.rows = s.rows:sub(1, -s.priced - 1) .. struct.pack('<I' .. s.priced, held)
  else
    if last < 0 then
      s.base, s.width, s.priced = now, log_width(s.window), 0
      s.stride = s.width
    elseif now - s.base >= 256 ^ s.width then
      log_rebase(s)
    end
    if cost ~= 1 or s.priced > 0 then
      log_price(s, cost)
      local form = '<I' .. s.width .. 'I' .. s.priced
      s.rows = s.rows .. struct.pack(form, now - s.base, cost)
    else
      s.rows = s.rows .. struct.pack('<I' .. s.width, now - s.base)
    end
  end
  s.total = s.total + cost
end

-- The instant by which `needed` has left the window.
local function log_leaving(s, needed)
  local last, place = #s.rows / s.stride - 1, 0
  if s.priced == 0 then
    place = math.min(needed - 1, last)
  elseif needed >= s.total then
    place = last
  else
    while place < last do
      needed = needed - log_cost(s, place)
      if needed <= 0 then
        break
      end
      place = place + 1
    end
  end
  return log_at(s, place) + s.window
end

-- Total, the instant at which `cost` fits (0: now), and the last event (0: none).
local function log_view(s, now, cost)
  local total = s.total
  if total == 0 then
    return 0, 0, 0
  end
  local over = total - s.quota + cost
  return total, over > 0 and log_leaving(s, over) or 0, log_at(s, #s.rows / s.stride - 1)
end

local function log_close(s)
  if s.total == 0 then
    return nil, 0
  end
  local head = struct.pack(
    '<I4i7i7i7B', s.tag, s.seen, s.total, s.base, 16 * s.width + s.priced
  )
  return head .. s.rows, log_at(s, #s.rows / s.stride - 1) + s.window - s.now
end
-- more

local function log_refund(s, now, cost, at)
  log_roll(s, now)
  if s.seen > now and now <= at then -- the clock went back and stands still
    at = s.seen
  end
  local place, stride = log_after(s, at - 1, 0), s.stride
  if cost == 0 or place == #s.rows / stride or log_at(s, place) ~= at then
    return
  end
  local held = log_cost(s, place)
  cost = math.min(cost, held)
  s.total, s.changed = s.total - cost, true
  local from, to = place * stride, (place + 1) * stride
  if cost == held then -- every event that is kept counts for something
    s.rows = s.rows:sub(1, from) .. s.rows:sub(to + 1)
  else
    s.rows = s.rows:sub(1, from + s.width) .. struct.pack('<I' .. s.priced, held - cost)
      .. s.rows:sub(to + 1)
  end
end
