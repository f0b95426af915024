-- take: a cost of one limit for one key, or for many keys that stand alone; for kinds whose
-- state is more than three words.
-- KEYS, ARGV and reply are those of take.lua, with a view in place of the words.

local call, micros = redis.call
local tag, tick, PARAMETERS, cost, max_wait, given, slack = struct.unpack('WHOLE', ARGV[1], 2)
if given < 0 then
  local time = call('TIME')
  micros = time[1] * 1000000 + time[2]
else
  micros = given
end
local now = (micros - micros % tick) / tick
local first
if not (KEYS[2] or ARGV[2]) then
  first = call('GET', KEYS[1])
  if first then
    local body, wait, a, b, c, lives = KIND_hit(first, now, cost, tag, PARAMETERS)
    if body then
      lives = lives * tick
      lives = math.min(100000000000000, (lives - lives % 1000) / 1000 + 2 + slack)
      call('SET', KEYS[1], body, 'PX', lives)
      return struct.pack('<i8i8i8i8i8', wait, a, b, c, now)
    end
  end
end
-- rest
-- needs value

-- All keys are read and looked at before one is written.
local values, rows = {}, {}
for i, key in ipairs(KEYS) do
  local value = first
  if value == nil then
    value = call('GET', key)
  end
  if value and struct.unpack('<I4', value) ~= tag then
    local row, shape = value_split(value), tag
    if row.first > 0 and row.first <= micros then
      return { -3, i }
    end
    if row.rule then
      if row.rule:byte() ~= ARGV[1]:byte() then
        return { -4, i, row.text }
      end
      if KEYS[2] then
        return { -3, i } -- the reply has no place for its text
      end
      shape = struct.unpack('<d', row.rule, 2)
    end
    if row.body ~= '' and struct.unpack('<I4', row.body) ~= shape then
      return { -2, i, value }
    end
    rows[i], value = row, row.body
  end
  values[i] = value
end

local replies = {}
for i, key in ipairs(KEYS) do
  local row = rows[i]
  if row and row.rule then -- only ever the one key of its call
    tag, tick, PARAMETERS = struct.unpack('FORMAT', row.rule, 2)
    now = (micros - micros % tick) / tick
  end
  local count = ARGV[2] and struct.unpack('<I4', ARGV[2], 4 * i - 3) or 1
  local body, wait, a, b, c, lives
  if count == 1 and values[i] and not row then
    body, wait, a, b, c, lives = KIND_hit(values[i], now, cost, tag, PARAMETERS)
  end
  if body then
    replies[#replies + 1] = struct.pack('<i8i8i8i8i8', wait, a, b, c, now)
    lives = lives * tick
    lives = math.min(100000000000000, (lives - lives % 1000) / 1000 + 2 + slack)
    call('SET', key, body, 'PX', lives)
  else
    local state = KIND_open(values[i] or nil, tag, PARAMETERS)
    KIND_roll(state, now)
    for n = 1, count do
      wait = KIND_fits(state, now, cost)
      if wait == 0 then
        KIND_put(state, now, cost)
      end
      a, b, c = KIND_view(state, now, cost)
      local reply = struct.pack('<i8i8i8i8i8', wait, a, b, c, now)
      if wait < 0 then -- and so are all that follow
        replies[#replies + 1] = reply:rep(count - n + 1)
        break
      end
      replies[#replies + 1] = reply
    end
    if state.changed then
      body, lives = KIND_close(state)
      value_write(key, row or VALUE_PLAIN, body or '', lives * tick, micros, slack)
    end
  end
end
local row = rows[1]
if row and row.rule then
  return { table.concat(replies), row.text }
end
return table.concat(replies)
