-- value: what is kept beside a state, and how it is written.
--
-- A plain value is a state's body alone. One with more begins with four bytes 255; then
-- '<I4I4I4i7' = the lengths of the own limit, reservations and tickets, and the first expiry of
-- a reservation (0: none); then those three, and then the body.
--   own limit     '<I2' = the length of its rule, the rule, the limit's text
--   reservations  40 bytes each: token, '<i8i8i8' = cost, taken at (us), expires (us)
--   tickets       32 bytes each: token, '<i8i8' = cost, expires (us)

local VALUE_PLAIN = { own = '', reserved = '', tickets = '' }

local function value_split(value)
  if value:sub(1, 4) ~= '\255\255\255\255' then
    return { own = '', reserved = '', tickets = '', first = 0, body = value }
  end
  local own, reserved, tickets, first = struct.unpack('<I4I4I4i7', value, 5)
  local row = { first = first, own = value:sub(24, 23 + own) }
  own = 23 + own
  row.reserved = value:sub(own + 1, own + reserved)
  row.tickets = value:sub(own + reserved + 1, own + reserved + tickets)
  row.body = value:sub(own + reserved + tickets + 1)
  if row.own ~= '' then
    local size = struct.unpack('<I2', row.own)
    row.rule, row.text = row.own:sub(3, 2 + size), row.own:sub(3 + size)
  end
  return row
end

-- Write what is left of a value, for as long as it matters: `lives` us (below 0: no end).
local function value_write(key, row, body, lives, micros, slack)
  local own, reserved, tickets = row.own, row.reserved, row.tickets
  if own ~= '' or reserved ~= '' or tickets ~= '' then
    local first, last = 0, 0
    for at = 33, #reserved, 40 do
      local expires = struct.unpack('<i8', reserved, at)
      first = (first == 0 or expires < first) and expires or first
      last = math.max(last, expires)
    end
    for at = 25, #tickets, 32 do
      last = math.max(last, (struct.unpack('<i8', tickets, at)))
    end
    lives = lives < 0 and lives or math.max(lives, last - micros)
    body = '\255\255\255\255' .. struct.pack('<I4I4I4i7', #own, #reserved, #tickets, first)
      .. own .. reserved .. tickets .. body
  end
  if body == '' then
    redis.call('DEL', key)
  elseif own ~= '' or lives < 0 then -- a setting, or a permit that only its holder ends
    redis.call('SET', key, body)
  else
    lives = math.min(100000000000000, (lives - lives % 1000) / 1000 + 2 + slack)
    redis.call('SET', key, body, 'PX', lives)
  end
end
