-- take: a cost of one limit for one key, or for many keys that stand alone.
-- KEYS     different keys of one limit
-- ARGV[1]  the rule: kind, '<d' each: tag, tick, the kernel's parameters; then '<d' each: cost
--          (from 1 on), the longest wait in us, now in us (-1: the server's time), slack: ms that
--          a state outlives its reset
-- ARGV[2]  optional, '<I4' for each key: how many takes of this cost
-- reply    '<i8i8i8i8i8' for each take in the order of keys: wait in ticks (-1: refused), three
--          words of state, now in ticks; for one key that has an own limit {that, its text}; or
--          of one take the 25 bytes that were written, if it passes at once and the first is now
-- or, before anything is written, {a code below 0, ...}:
--          {-1, i, now in us}  outside the calendar's window that was sent; with the value behind
--                              it if the window is that of the key's own limit
--          {-2, i, value}      the state of key i was written by a rule of another shape
--          {-3, i}             key i is for decide
--          {-4, i, text}       key i has an own limit of another kind

local call, micros, now = redis.call
local tag, tick, PARAMETERS, cost, max_wait, given, slack = struct.unpack('WHOLE', ARGV[1], 2)
if given < 0 then
  local time = call('TIME')
  micros = time[1] * 1000000 + time[2]
else
  micros = given
end
now = micros
if tick > 1 then
  now = (micros - micros % tick) / tick
  max_wait = (max_wait - max_wait % tick) / tick
end
if OUTSIDE then
  return { -1, 1, micros }
end
if not (KEYS[2] or ARGV[2]) then
  local key = KEYS[1]
  local value, shape = call('GET', key), tag
  local a, b, c, before, wait, lives
  if not value then
    a, b, c, before = FRESH
  elseif #value == 25 then
    shape, a, b, c = struct.unpack('<I4i7i7i7', value)
    before = a
  else
    shape = nil
  end
  if shape == tag then
    wait, a, b, c, lives = KIND_take(a, b, c, now, cost, max_wait, PARAMETERS)
    if wait >= 0 or a ~= before then
      lives = lives * tick
      lives = (lives - lives % 1000) / 1000 + 2 + slack
      if lives > 100000000000000 then
        lives = 100000000000000
      end
      local body = struct.pack('<I4i7i7i7', tag, a, b, c)
      call('SET', key, body, 'PX', lives)
      if wait == 0 and a == now then
        return body
      end
    end
    return struct.pack('<i8i8i8i8i8', wait, a, b, c, now)
  end
end

-- needs value

-- Anything else: all keys are read and looked at before one is written.
local values, rows = {}, {}
for i, key in ipairs(KEYS) do
  local value = call('GET', key)
  if value and (#value ~= 25 or struct.unpack('<I4', value) ~= tag) then
    local row = value_split(value)
    if row.first > 0 and row.first <= micros then
      return { -3, i }
    end
    local shape = tag
    if row.rule then
      if row.rule:byte() ~= ARGV[1]:byte() then
        return { -4, i, row.text }
      end
      if KEYS[2] then
        return { -3, i } -- the reply has no place for its text
      end
      local tag, tick, PARAMETERS = struct.unpack('FORMAT', row.rule, 2)
      local now = (micros - micros % tick) / tick
      if OUTSIDE then
        return { -1, i, micros, value }
      end
      shape = tag
    end
    if row.body ~= '' and struct.unpack('<I4', row.body) ~= shape then
      return { -2, i, value }
    end
    rows[i], value = row, row.body
  end
  values[i] = value
end

local replies, patience = {}, (struct.unpack('<d', ARGV[1], #ARGV[1] - 23))
for i, key in ipairs(KEYS) do
  local value, row, _ = values[i], rows[i]
  local a, b, c, before, wait, lives, ends
  if row and row.rule then -- only ever the one key of its call
    tag, tick, PARAMETERS = struct.unpack('FORMAT', row.rule, 2)
    now = (micros - micros % tick) / tick
    max_wait = (patience - patience % tick) / tick
  end
  if value and value ~= '' then
    _, a, b, c = struct.unpack('<I4i7i7i7', value)
    before = a
  else
    a, b, c, before = FRESH
  end
  local count = ARGV[2] and struct.unpack('<I4', ARGV[2], 4 * i - 3) or 1
  for n = 1, count do
    wait, a, b, c, lives = KIND_take(a, b, c, now, cost, max_wait, PARAMETERS)
    if wait >= 0 or a ~= before then
      before, ends = a, lives
    end
    local reply = struct.pack('<i8i8i8i8i8', wait, a, b, c, now)
    if wait < 0 then -- and so are all that follow
      replies[#replies + 1] = reply:rep(count - n + 1)
      break
    end
    replies[#replies + 1] = reply
  end
  if ends then
    local body = struct.pack('<I4i7i7i7', tag, a, b, c)
    value_write(key, row or VALUE_PLAIN, body, ends * tick, micros, slack)
  end
end
local row = rows[1]
if row and row.rule then
  return { table.concat(replies), row.text }
end
return table.concat(replies)
