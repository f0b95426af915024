-- cells: a window of n cells, of which the oldest leaves as a new one begins.
--
-- Parameters: quota, window in ticks, n. Cells are aligned to the epoch, and n of them are exactly
-- one window also where n does not divide it.
--
-- Body: '<I4i7i7B' = tag, number of the newest cell, total, width; then counts of `width` bytes
-- each (1, 2, 4 or 7), the newest cell's last. Empty cells in front of the first that counts are
-- left out, so a key that is seldom used is short. A row whose total is 0 is no body at all.
--
-- What stands before the line `-- rest` is enough for most takes.
--
-- State s: what the body says (`rows` are the counts), `now` and the number of its cell, and
-- `changed`: whether there is something to write. A key that has no body does not change by time.

-- A take in the present cell of a plain value, in one step: the new body, wait, view, lives.
-- Nothing if it is not that simple, or of another shape: then the functions below say what becomes
-- of it.
local function cells_hit(body, now, cost, tag, quota, window, n)
  local shape, newest, total, width = struct.unpack('<I4i7i7B', body)
  local rest = now % window
  local begin = now - rest
  rest = rest * n
  local place = (rest - rest % window) / window
  total = total + cost
  if shape ~= tag or begin / window * n + place ~= newest or total > quota - cost then
    return -- where the next does not fit, it must be said when it will
  end
  local form, size = '<I' .. width, #body
  local count = struct.unpack(form, body, size - width + 1) + cost
  if count >= 256 ^ width then
    return
  end
  local ends = place * window
  ends = begin + (ends + -ends % n) / n + window
  body = struct.pack('<I4i7i7B', tag, newest, total, width) .. body:sub(20, size - width)
    .. struct.pack(form, count)
  return body, 0, total, 0, newest + n, ends - now
end
-- rest

local CELLS_MOST = 9007199254740991

local function cells_open(body, tag, quota, window, n)
  local s = {
    tag = tag, quota = quota, window = window, n = n, known = false, changed = false,
    newest = 0, total = 0, width = 1, rows = '\0', now = 0, cell = 0,
  }
  if body and body ~= '' then
    local _
    _, s.newest, s.total, s.width = struct.unpack('<I4i7i7B', body)
    s.rows = body:sub(20)
    s.known = true
  end
  return s
end

-- The number of the cell that holds an instant.
local function cells_number(s, at)
  local windows = math.floor(at / s.window)
  return windows * s.n + math.floor((at - windows * s.window) * s.n / s.window)
end

-- The count at a place of the row, which begins with 0.
local function cells_count(s, place)
  if s.width == 1 then
    return s.rows:byte(place + 1)
  end
  return (struct.unpack('<I' .. s.width, s.rows, place * s.width + 1))
end

-- The number of the last cell that counts for something; the newest if there is none.
local function cells_last(s)
  local rows, width = s.rows, s.width
  if s.total == 0 or rows:find('[^%z]', -width) then
    return s.newest
  end
  return s.newest + math.floor((rows:match('^.*[^%z]()') - 2) / width) + 1 - #rows / width
end

-- Write a count at a place of the row, in wider cells if it does not fit.
local function cells_set(s, place, count)
  local width = s.width
  if count >= 256 ^ width then
    local wide = count < 65536 and 2 or count < 4294967296 and 4 or 7
    s.rows = s.rows:gsub(('.'):rep(width), '%0' .. ('\0'):rep(wide - width))
    s.width, width = wide, wide
  end
  local at = place * width
  s.rows = s.rows:sub(1, at) .. struct.pack('<I' .. width, count) .. s.rows:sub(at + width + 1)
  s.changed = true
end

local function cells_roll(s, now)
  local cell, newest, total = cells_number(s, now), s.newest, s.total
  s.now, s.cell = now, cell
  if cell == newest then
    return
  end
  if cell > newest then
    local step, rows, width = cell - newest, s.rows, s.width
    s.newest = cell
    if step >= s.n then
      total = 0
    elseif total > 0 then
      local gone = #rows / width + step - s.n
      for place = 0, gone - 1 do
        total = total - cells_count(s, place)
      end
      rows = rows .. ('\0'):rep(step * width)
      if total > 0 then
        local first = rows:find('[^%z]', math.max(0, gone) * width + 1)
        rows = rows:sub(math.floor((first - 1) / width) * width + 1)
        local narrow = width == 7 and 4 or width / 2
        if width > 1 and total < 256 ^ narrow then
          rows = rows:gsub('(' .. ('.'):rep(narrow) .. ')' .. ('.'):rep(width - narrow), '%1')
          s.width = narrow
        end
        s.rows = rows
      end
    end
    s.total = total
    if total == 0 then
      s.width, s.rows = 1, '\0'
    end
  elseif newest - cell > s.n then -- the clock went far back: all of it counts as new
    s.newest, s.width, s.rows = cell, 1, '\0'
    cells_set(s, 0, total)
  else
    return
  end
  s.changed = s.known
end

local function cells_fits(s, now, cost)
  return s.total + cost <= s.quota and 0 or -1
end

local function cells_put(s, now, cost)
  cost = math.min(cost, CELLS_MOST - s.total)
  local place = #s.rows / s.width - 1
  s.total = s.total + cost
  cells_set(s, place, cells_count(s, place) + cost)
end

-- Total, the cell at whose begin `cost` fits (0: now), and the cell at whose begin all is gone.
local function cells_view(s, now, cost)
  local n, newest, over, leaves = s.n, s.newest, s.total - s.quota + cost, 0
  if over > 0 then
    local last = #s.rows / s.width - 1
    local place = 0
    while place < last do
      over = over - cells_count(s, place)
      if over <= 0 then
        break
      end
      place = place + 1
    end
    leaves = newest - last + place + n
  end
  return s.total, leaves, cells_last(s) + n
end

local function cells_close(s)
  if s.total == 0 then
    return nil, 0
  end
  local ends, n = cells_last(s) + s.n, s.n
  local windows = math.floor(ends / n)
  local begin = windows * s.window - math.floor(-(ends - windows * n) * s.window / n)
  return struct.pack('<I4i7i7B', s.tag, s.newest, s.total, s.width) .. s.rows, begin - s.now
end
-- more

local function cells_refund(s, now, cost, at)
  cells_roll(s, now)
  local newest, cell = s.newest, cells_number(s, at)
  if newest > s.cell and s.cell <= cell then -- the clock went back and stands still
    cell = newest
  end
  local place = #s.rows / s.width - 1 - newest + cell
  if place < 0 or cell > newest then
    return
  end
  local count = cells_count(s, place)
  cost = math.min(cost, count)
  if cost > 0 then
    s.total = s.total - cost
    cells_set(s, place, count - cost)
    if s.total == 0 then
      s.width, s.rows = 1, '\0'
    end
  end
end
