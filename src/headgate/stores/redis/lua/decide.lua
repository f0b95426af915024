-- decide: answer asks in order; takes pass together or not at all.
-- KEYS     one for each ask; the same key may come again
-- ARGV[1]  '<dd' now in us (-1: the server's time), slack: ms that a state outlives its reset
-- ARGV     then for each ask its rule (kind; '<d' each: tag, tick, the kernel's parameters) and
--          its op: '<d' each: number, cost, longest wait (us), least, ttl (us), at (us); token
-- reply    for each ask '<i8i8i8i8i8' wait in ticks (-1: refused), three words of state or view,
--          now in ticks; '<i8i8' fence of a permit (0: none), cost decided on; then the text of
--          the key's own limit, if it has one
-- or, before anything is written, {a code below 0, ...}:
--          {-1, i, now in us}  outside the calendar's window of ask i; with the value behind it
--                              if the window is that of the key's own limit
--          {-2, i, value}      the state of ask i was written by a rule of another shape
--          {-4, i, text}       ask i's key has an own limit whose kernel is not here
-- All is worked out on Lua values first; what has changed is written at the end.

local call, micros, slack = redis.call, struct.unpack('<dd', ARGV[1])
if micros < 0 then
  local time = call('TIME')
  micros = time[1] * 1000000 + time[2]
end

-- The short way: plain takes of different keys whose states are three words.
local unpack, pack, keys, args = struct.unpack, struct.pack, KEYS, ARGV
local replies, values, bodies, short, refused, count = {}, {}, {}, true, false, #keys
for i = 1, count do
  local key, rule = keys[i], args[2 * i]
  local op, cost, max_wait, least, ttl = unpack('<ddddd', args[2 * i + 1])
  local kind, tag, tick = unpack('<Bdd', rule)
  local value, shape, now = call('GET', key), tag, micros
  local a, b, c, before, wait, lives = 0, 0, 0, 0
  if value and #value == 25 then
    shape, a, b, c = unpack('<I4i7i7i7', value)
    before = a
  elseif value or STARTS_LOW then
    short = false
  end
  for j = 1, i - 1 do
    short = short and keys[j] ~= key
  end
  if op ~= 1 or cost == 0 or least >= 0 or ttl > 0 or shape ~= tag or not short then
    short = false
    break
  end
  if tick > 1 then
    now = (micros - micros % tick) / tick
    max_wait = (max_wait - max_wait % tick) / tick
  end
TAKES
  if not wait then
    short = false
    break
  end
  replies[i] = pack('<i8i8i8i8i8i8i8', wait, a, b, c, now, 0, cost)
  values[i] = value
  if wait >= 0 or a ~= before then
    bodies[2 * i] = pack('<I4i7i7i7', tag, a, b, c)
    lives = lives * tick
    lives = (lives - lives % 1000) / 1000 + 2 + slack
    bodies[2 * i - 1] = lives > 100000000000000 and 100000000000000 or lives
  end
  refused = refused or wait < 0
end
if short then
  for i = 1, count do
    local reply = replies[i]
    if refused and unpack('<i8', reply) >= 0 then
      -- What would have passed alone says so, with what is left as if it had not been asked.
      local a, b, c, _ = 0, 0, 0
      if values[i] then
        _, a, b, c = unpack('<I4i7i7i7', values[i])
      end
      replies[i] = reply:sub(1, 8) .. pack('<i8i8i8', a, b, c) .. reply:sub(33)
    elseif bodies[2 * i] then
      call('SET', keys[i], bodies[2 * i], 'PX', bodies[2 * i - 1])
    end
  end
  return replies
end
replies, refused = {}, false
KERNELS
-- needs value
-- needs asking

-- What is kept under each key, and under which rule each ask is answered.
local cells, asks, partial = {}, {}, false
for i, key in ipairs(KEYS) do
  local ask, rule = { key = key }, ARGV[2 * i]
  ask.op, ask.cost, ask.max_wait, ask.least, ask.ttl, ask.at, ask.token
    = struct.unpack('<ddddddc16', ARGV[2 * i + 1])
  local cell = cells[key]
  if not cell then
    local value = call('GET', key)
    cell = value_split(value or '')
    cell.value, cell.key = value, key
    cells[key], cells[#cells + 1] = cell, cell
  end
  rule = cell.rule or rule
  local kind, tag, tick = struct.unpack('<Bdd', rule)
  local kernel = KERNELS[kind]
  if not kernel then
    return { -4, i, cell.text }
  end
  ask.rule, ask.kernel, ask.tick, ask.cell = rule, kernel, tick, cell
  ask.now = (micros - micros % tick) / tick
  if kind == 7 then
    local begin, finish = struct.unpack('<dd', rule, 26)
    if ask.now < begin or ask.now >= finish then
      return cell.rule and { -1, i, micros, cell.value } or { -1, i, micros }
    end
  end
  if cell.body ~= '' and struct.unpack('<I4', cell.body) ~= tag then
    return { -2, i, cell.value }
  end
  if not cell.tag then
    cell.tag, cell.ask = tag, ask
    opened(cell, ask)
    if cell.first > 0 and cell.first <= micros then
      reaped(cell, ask, micros)
    end
  elseif cell.tag ~= tag then
    return { -2, i, cell.value or '' }
  end
  partial = partial or ask.least >= 0
  asks[i] = ask
end

if partial then
  local room = 9007199254740991
  for _, ask in ipairs(asks) do
    if ask.op == 1 then
      room = math.min(room, left(ask))
    end
  end
  for _, ask in ipairs(asks) do
    if ask.op == 1 then
      ask.cost = math.min(ask.cost, math.max(room, ask.least))
    end
  end
end

local undo = {}
for i, ask in ipairs(asks) do
  replies[i] = answered(ask, undo, micros)
  refused = refused or (ask.op == 1 and ask.wait < 0)
end
if refused then
  for i = #undo, 1, -1 do
    undone(undo[i])
  end
  -- What would have passed alone says so, with what is left as if it had not been asked.
  for i, ask in ipairs(asks) do
    if ask.op == 1 and ask.wait >= 0 then
      replies[i] = looked(ask)
    end
  end
end

for _, cell in ipairs(cells) do
  local state = cell.state
  if cell.changed or cell.noted or (state and state.changed) then
    local body, lives, ask = '', 0, cell.ask
    if state then
      body, lives = ask.kernel.close(state)
    elseif cell.seen then
      lives = cell.lives or lasting(cell, ask)
      body = struct.pack('<I4i7i7i7', cell.tag, cell.a, cell.b, cell.c)
    end
    lives = lives < 0 and lives or lives * ask.tick
    value_write(cell.key, cell, body or '', lives, micros, slack)
  end
end
return replies
