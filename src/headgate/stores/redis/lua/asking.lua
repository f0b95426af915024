-- asking: what is done with one ask. An ask is a table: what was sent, its kernel, `now` in ticks,
-- and its cell: all that is kept under its key. A cell of three words holds them as a, b, c, and
-- `seen`; other cells have a `state`, which their kernel made.
-- needs records

local function numbers(ask)
  return struct.unpack(ask.kernel.form, ask.rule, 18)
end

-- Read a state from its body.
local function opened(cell, ask)
  local kernel = ask.kernel
  cell.seen = cell.body ~= ''
  if kernel.open then
    cell.state = kernel.open(cell.seen and cell.body or nil, cell.tag, numbers(ask))
    kernel.roll(cell.state, ask.now)
  elseif cell.seen then
    local _
    _, cell.a, cell.b, cell.c = struct.unpack('<I4i7i7i7', cell.body)
  elseif kernel.fresh then
    cell.a, cell.b, cell.c, cell.sticky = kernel.fresh(ask.now, numbers(ask))
    cell.sticky = cell.sticky < 0
  else
    cell.a, cell.b, cell.c = 0, 0, 0
  end
end

-- In how many ticks a cell of three words is as if never used.
local function lasting(cell, ask)
  local _, _, _, lives = ask.kernel.charge(cell.a, cell.b, cell.c, ask.now, 0, numbers(ask))
  return lives
end

-- How much of cost 1 would pass now.
local function left(ask)
  local cell = ask.cell
  if cell.state then
    local used = ask.kernel.view(cell.state, ask.now, 0)
    return math.max(0, numbers(ask) - used) -- the quota comes first
  end
  return ask.kernel.left(cell.a, cell.b, cell.c, ask.now, numbers(ask))
end

-- Asks of one call may hold one key to different quotas.
local function faced(ask)
  local state = ask.cell.state
  if state then
    state.quota, state.window = numbers(ask)
    ask.kernel.roll(state, ask.now)
  end
end

local function replied(ask, wait, cost, fence)
  local cell, a, b, c = ask.cell
  ask.wait = wait
  if cell.state then
    a, b, c = ask.kernel.view(cell.state, ask.now, cost)
  else
    a, b, c = cell.a, cell.b, cell.c
  end
  return struct.pack('<i8i8i8i8i8i8i8', wait, a, b, c, ask.now, fence or 0, cost)
    .. (cell.text or '')
end

-- What a take would do: its wait and the words it leaves.
local function tried(ask)
  local cell, tick = ask.cell, ask.tick
  if cell.state then
    return ask.kernel.fits(cell.state, ask.now, ask.cost)
  end
  local max_wait = (ask.max_wait - ask.max_wait % tick) / tick
  return ask.kernel.take(cell.a, cell.b, cell.c, ask.now, ask.cost, max_wait, numbers(ask))
end

local function looked(ask)
  faced(ask)
  return replied(ask, ask.cost > 0 and tried(ask) or 0, ask.cost)
end

local function charged(ask, cost)
  local cell, kernel = ask.cell, ask.kernel
  if cost == 0 then
    return
  end
  if cell.state then
    kernel.put(cell.state, ask.now, cost, ('\0'):rep(16), 0)
  else
    cell.a, cell.b, cell.c, cell.lives
      = kernel.charge(cell.a, cell.b, cell.c, ask.now, cost, numbers(ask))
  end
  cell.seen, cell.changed = true, true
end

-- Give back what was taken at the instant `at`, in us.
local function refunded(ask, cost, at)
  local cell, kernel = ask.cell, ask.kernel
  if cost == 0 or not cell.seen then
    return
  end
  at = (at - at % ask.tick) / ask.tick
  if cell.state then
    kernel.refund(cell.state, ask.now, cost, at)
  else
    cell.a, cell.b, cell.c, cell.lives
      = kernel.refund(cell.a, cell.b, cell.c, ask.now, cost, at, numbers(ask))
  end
  cell.changed = true
end

-- Give back what was not settled in time, the first expiry first.
local function reaped(cell, ask, micros)
  while true do
    local first, place = micros + 1
    for at = 1, #cell.reserved, 40 do
      local expires = struct.unpack('<i8', cell.reserved, at + 32)
      if expires < first then
        first, place = expires, at
      end
    end
    if not place then
      return
    end
    local cost, taken = struct.unpack('<i8i8', cell.reserved, place + 16)
    cell.reserved, cell.noted = without(cell.reserved, 40, place), true
    refunded(ask, cost, taken)
  end
end

local function expiry(ask)
  if ask.ttl == 0 then
    return 0
  end
  return ask.now + math.ceil(ask.ttl / ask.tick)
end

-- Take from a state that is not three words; permits stand in line.
local function entered(ask, undo, micros)
  local cell, kernel, now = ask.cell, ask.kernel, ask.now
  local state, wait, ahead = cell.state, -1, nil
  if kernel.held then
    ahead = lined_up(cell, micros, ask.token)
    ahead = ask.max_wait > 0 and ahead or 0
  end
  wait = kernel.fits(state, now, ask.cost, ask.token, ahead)
  if wait < 0 then
    if kernel.held and ask.max_wait > 0 and ask.cost <= state.quota then
      queued(cell, ask, micros)
    end
    return replied(ask, wait, ask.cost)
  end
  local again = kernel.held and kernel.held(state, ask.token)
  local tickets = cell.tickets
  local fence = kernel.put(state, now, ask.cost, ask.token, expiry(ask))
  if kernel.held then
    lined_up(cell, micros, ask.token, true)
  end
  undo[#undo + 1] = { ask = ask, again = again, seen = cell.seen, tickets = tickets }
  cell.seen = true
  return replied(ask, wait, ask.cost, fence)
end

local function taken(ask, undo, micros)
  local cell, reply = ask.cell
  if cell.state then
    reply = entered(ask, undo, micros)
  else
    local before = {
      ask = ask, a = cell.a, b = cell.b, c = cell.c, seen = cell.seen, lives = cell.lives,
      changed = cell.changed,
    }
    local wait, a, b, c, lives = tried(ask)
    if wait >= 0 or a ~= cell.a or (cell.sticky and not cell.seen) then
      cell.a, cell.b, cell.c, cell.lives = a, b, c, lives
      cell.seen, cell.changed = true, true
    end
    if wait >= 0 then
      undo[#undo + 1] = before
    end
    reply = replied(ask, wait, ask.cost)
  end
  if ask.wait >= 0 and ask.ttl > 0 and not ask.kernel.held and ask.token ~= ('\0'):rep(16) then
    undo[#undo + 1] = { ask = ask, reserved = cell.reserved, noted = cell.noted }
    reserved(cell, ask.token, ask.cost, (ask.now + ask.wait) * ask.tick, micros + ask.ttl)
  end
  return reply
end

-- Undo a take of this call.
local function undone(before)
  local ask = before.ask
  local cell = ask.cell
  if before.reserved then
    popped(cell, ask.token)
    if cell.reserved == before.reserved then
      cell.noted = before.noted
    end
  elseif not cell.state then
    cell.a, cell.b, cell.c, cell.lives = before.a, before.b, before.c, before.lives
    cell.seen = before.seen or cell.sticky
    cell.changed = before.changed or cell.sticky
  elseif ask.kernel.held then
    if not before.again then
      ask.kernel.release(cell.state, ask.token)
      cell.tickets = before.tickets
    end
  else
    ask.kernel.refund(cell.state, ask.now, ask.cost, ask.now)
    cell.seen = before.seen
  end
end

local function released(ask, micros)
  local cell, kernel = ask.cell, ask.kernel
  if not kernel.held then
    return -1
  end
  lined_up(cell, micros, ask.token, true)
  return kernel.release(cell.state, ask.token) and 0 or -1
end

local function renewed(ask, micros)
  local cell, kernel = ask.cell, ask.kernel
  if kernel.held then
    return kernel.renew(cell.state, ask.token, expiry(ask)) and 0 or -1
  end
  if not found(cell.reserved, 40, ask.token) then
    return -1
  end
  local cost, at = popped(cell, ask.token)
  reserved(cell, ask.token, cost, at, micros + ask.ttl)
  return 0
end

local function reset(ask)
  local cell = ask.cell
  if cell.seen then
    cell.body, cell.reserved, cell.tickets, cell.changed, cell.lives = '', '', '', true, nil
    opened(cell, ask)
    cell.seen = cell.sticky or false -- what starts low has started now
  end
end

local function answered(ask, undo, micros)
  local op, wait = ask.op, 0
  if op == 2 or (op <= 3 and ask.cost == 0) then
    return looked(ask)
  end
  faced(ask)
  if op <= 3 then
    return taken(ask, undo, micros)
  elseif op == 4 then
    charged(ask, ask.cost)
  elseif op == 5 then
    refunded(ask, ask.cost, ask.at)
  elseif op == 6 then
    -- If it had expired, nothing is taken any more and all of it is charged.
    local cost, at = popped(ask.cell, ask.token)
    charged(ask, math.max(0, ask.cost - cost))
    refunded(ask, math.max(0, cost - ask.cost), at)
  elseif op == 7 then
    wait = released(ask, micros)
  elseif op == 8 then
    wait = renewed(ask, micros)
  else
    reset(ask)
  end
  return replied(ask, wait, 0)
end
