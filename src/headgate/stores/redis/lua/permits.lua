-- permits: at most so many at once; each permit is given back, or its lease runs out.
--
-- Parameters: quota. Ticks are microseconds: a concurrent limit has no window to be coarser for.
--
-- Body: '<I4i7I4i7i7i7B' = tag, total, how many permits have no expiry, first and last expiry
-- (0: none), the last fence, and whether first (1) and last (2) are bounds only, because the
-- permit they were read from is gone; then the permits, 37 bytes each: the token, and '<i7i7i7'
-- cost, expiry (0: none), fence. No permits are no body at all, unless the last fence is not in
-- the past: then the next must still be larger than it.
--
-- Tokens are opaque: 16 bytes. A permit's fence is larger than that of every earlier grant.
-- Beyond what all kinds do:
--   permits_fits(s, now, cost, token, ahead)   `ahead`, if given: what tickets before this one
--       ask for (0 for those who may overtake). What holds a permit already waits for nobody.
--   permits_put(s, now, cost, token, expires)  returns the permit's fence. A token that holds
--       keeps what it has, its fence too.
--   permits_held(s, token)                     whether a token holds a permit.
-- Tickets are not seen here: a ticket ends where put is called for its token.
--
-- State s: what the body says (`rows` are the permits), `now`, and `changed`: whether there is
-- something to write.

local PERMITS_MOST = 9007199254740991

local function permits_open(body, tag, quota)
  local s = {
    tag = tag, quota = quota, known = false, changed = false, now = 0, rows = '', total = 0,
    endless = 0, first = 0, last = 0, fence = 0, loose_first = false, loose_last = false,
  }
  if body and body ~= '' then
    local _, loose
    _, s.total, s.endless, s.first, s.last, s.fence, loose
      = struct.unpack('<I4i7I4i7i7i7B', body)
    s.loose_first, s.loose_last = loose % 2 == 1, loose >= 2
    s.rows = body:sub(38)
    s.known = true
  end
  return s
end

-- Where a token's permit begins in the rows, or nil. Other bytes may look like the token.
local function permits_find(s, token)
  local at = s.rows:find(token, 1, true)
  while at and (at - 1) % 37 ~= 0 do
    at = s.rows:find(token, at + 1, true)
  end
  return at
end

local function permits_held(s, token)
  return permits_find(s, token) ~= nil
end

-- Drop what has expired, and find the first and the last expiry of the rest.
local function permits_tidy(s)
  local rows, now, first, last, kept, from = s.rows, s.now, 0, 0, {}, 1
  for at = 1, #rows, 37 do
    local cost, expires = struct.unpack('<i7i7', rows, at + 16)
    if expires > 0 and expires <= now then
      s.total = s.total - cost
      kept[#kept + 1] = rows:sub(from, at - 1)
      from = at + 37
    elseif expires > 0 then
      first = (first == 0 or expires < first) and expires or first
      last = math.max(last, expires)
    end
  end
  s.rows = from == 1 and rows or table.concat(kept) .. rows:sub(from)
  s.first, s.last, s.loose_first, s.loose_last, s.changed = first, last, false, false, true
end

-- Note an expiry: that of a new permit, or of one that was renewed.
local function permits_note(s, expires)
  if expires == 0 then
    s.endless = s.endless + 1
    return
  end
  if s.first == 0 or expires <= s.first then
    s.first, s.loose_first = expires, false
  end
  if expires >= s.last then
    s.last, s.loose_last = expires, false
  end
end

-- Forget an expiry: what was the first or the last is only a bound from now on.
local function permits_drop(s, expires)
  if expires == 0 then
    s.endless = s.endless - 1
    return
  end
  s.loose_first = s.loose_first or expires == s.first
  s.loose_last = s.loose_last or expires == s.last
end

local function permits_roll(s, now)
  s.now = now
  if s.first > 0 and s.first <= now then
    permits_tidy(s)
  end
end

local function permits_fits(s, now, cost, token, ahead)
  if ahead and ahead > 0 and permits_find(s, token) then
    ahead = 0
  end
  return s.total + (ahead or 0) + cost <= s.quota and 0 or -1
end

local function permits_put(s, now, cost, token, expires)
  local at = permits_find(s, token)
  if at then -- the same client-made id again: nothing new is taken
    return (struct.unpack('<i7', s.rows, at + 30))
  end
  local fence = math.max(s.fence + 1, now)
  cost = math.min(cost, PERMITS_MOST - s.total)
  s.rows = s.rows .. token .. struct.pack('<i7i7i7', cost, expires, fence)
  s.total, s.fence, s.changed = s.total + cost, fence, true
  permits_note(s, expires)
  return fence
end

-- Total, the first expiry if `cost` does not fit (0: none), and the last (-1: never, 0: none held).
local function permits_view(s, now, cost)
  local over = s.total + cost > s.quota
  if (over and s.loose_first) or (s.loose_last and s.endless == 0) then
    permits_tidy(s)
  end
  return s.total, over and s.first or 0, s.endless > 0 and -1 or s.last
end

local function permits_close(s)
  local lives = s.endless > 0 and -1 or math.max(0, s.last - s.now)
  if s.rows == '' then
    if s.fence < s.now then
      return nil, 0
    end
    lives = s.fence - s.now + 1
  end
  local loose = (s.loose_first and 1 or 0) + (s.loose_last and 2 or 0)
  local head = struct.pack(
    '<I4i7I4i7i7i7B', s.tag, s.total, s.endless, s.first, s.last, s.fence, loose
  )
  return head .. s.rows, lives
end
-- more

local function permits_refund(s, now, cost, at) -- a permit comes back by its token alone
end

local function permits_release(s, token)
  local at = permits_find(s, token)
  if not at then
    return false
  end
  local cost, expires = struct.unpack('<i7i7', s.rows, at + 16)
  s.total, s.changed = s.total - cost, true
  s.rows = s.rows:sub(1, at - 1) .. s.rows:sub(at + 37)
  permits_drop(s, expires)
  if #s.rows == 37 * s.endless then
    s.first, s.last, s.loose_first, s.loose_last = 0, 0, false, false
  end
  return true
end

local function permits_renew(s, token, expires)
  local at = permits_find(s, token)
  if not at then
    return false
  end
  permits_drop(s, (struct.unpack('<i7', s.rows, at + 23)))
  s.rows = s.rows:sub(1, at + 22) .. struct.pack('<i7', expires) .. s.rows:sub(at + 30)
  permits_note(s, expires)
  s.changed = true
  return true
end
