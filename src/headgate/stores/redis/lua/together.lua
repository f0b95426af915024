-- together: takes of one cost on different keys, of limits known beforehand; all pass or none.
-- KEYS     one for each limit, all different
-- ARGV[1]  '<ddd' now in us (-1: the server's time), slack (ms), cost; then the rules
-- reply    if all pass at once: '<i8' now in us, and three words for each; else as decide does,
--          which follows: these are its arguments in fewer words
-- What stands between `each` and `end` is written out for each limit, with its place for `_i`.

do
  local call, unpack, pack, keys = redis.call, struct.unpack, struct.pack, KEYS
  local micros, slack, cost, NUMBERS = unpack('WHOLE', ARGV[1])
  if micros < 0 then
    local time = call('TIME')
    micros = time[1] * 1000000 + time[2]
  end
  local fits = true
  -- each
  local value_i, shape_i = call('GET', keys[_i]), tag_i
  local now_i, a_i, b_i, c_i, wait_i, lives_i = micros
  if tick_i > 1 then
    now_i = (micros - micros % tick_i) / tick_i
  end
  if not value_i then
    a_i, b_i, c_i = FRESH_i
  elseif #value_i == 25 then
    shape_i, a_i, b_i, c_i = unpack('<I4i7i7i7', value_i)
  else
    shape_i = nil
  end
  if fits and shape_i == tag_i then
    wait_i, a_i, b_i, c_i, lives_i = TAKE_i(a_i, b_i, c_i, now_i, cost, 0, OWN_i)
  end
  fits = fits and wait_i == 0
  -- end
  if fits then
    -- each
    lives_i = lives_i * tick_i
    lives_i = (lives_i - lives_i % 1000) / 1000 + 2 + slack
    if lives_i > 100000000000000 then
      lives_i = 100000000000000
    end
    call('SET', keys[_i], pack('<I4i7i7i7', tag_i, a_i, b_i, c_i), 'PX', lives_i)
    -- end
    return pack('REPLY', micros, WORDS)
  end
end
local take = struct.pack('<dc8dddddd', 1, ARGV[1]:sub(17, 24), 0, -1, 0, 0, 0, 0)
local ARGV = { ARGV[1], RULES }
