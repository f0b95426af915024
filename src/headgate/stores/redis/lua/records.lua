-- records: reservations and tickets, rows of one size that begin with a token of 16 bytes. A cell
-- is `noted` once they have changed.

-- Where a token's record begins among records of this size, or nil.
local function found(records, size, token)
  local at = records:find(token, 1, true)
  while at and (at - 1) % size ~= 0 do -- other bytes may look like it
    at = records:find(token, at + 1, true)
  end
  return at
end

local function without(records, size, at)
  return records:sub(1, at - 1) .. records:sub(at + size)
end

-- Take a reservation out: what was taken, and when; nothing if there is none any more.
local function popped(cell, token)
  local at = found(cell.reserved, 40, token)
  if not at then
    return 0, 0
  end
  local cost, taken = struct.unpack('<i8i8', cell.reserved, at + 16)
  cell.reserved, cell.noted = without(cell.reserved, 40, at), true
  return cost, taken
end

local function reserved(cell, token, cost, at, expires)
  popped(cell, token)
  cell.reserved = cell.reserved .. token .. struct.pack('<i8i8i8', cost, at, expires)
  cell.noted = true
end

-- Drop the tickets that have expired, and a token's own if it is named; what those before the
-- token's ask for.
local function lined_up(cell, micros, token, leaves)
  local kept, ahead, passed = '', 0, false
  for at = 1, #cell.tickets, 32 do
    local cost, expires = struct.unpack('<i8i8', cell.tickets, at + 16)
    local own = cell.tickets:sub(at, at + 15) == token
    passed = passed or (own and expires > micros)
    if expires > micros and not (own and leaves) then
      kept = kept .. cell.tickets:sub(at, at + 31)
      ahead = ahead + (passed and 0 or cost)
    end
  end
  if kept ~= cell.tickets then
    cell.tickets, cell.noted = kept, true
  end
  return ahead
end

-- Enter a ticket at the end of the line, or let the one that is there live on.
local function queued(cell, ask, micros)
  local at = found(cell.tickets, 32, ask.token)
  local ticket = ask.token .. struct.pack('<i8i8', ask.cost, micros + 2000000)
  if at then
    cell.tickets = cell.tickets:sub(1, at - 1) .. ticket .. cell.tickets:sub(at + 32)
  else
    cell.tickets = cell.tickets .. ticket
  end
  cell.noted = true
end
