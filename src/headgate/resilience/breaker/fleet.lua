-- One node of a fleet tells how its own breaker sees things, and learns how the fleet does.
-- KEYS  1 nodes that are alive, by when that ends (sorted set, ms)
--       2 those of them whose own breaker has opened (the same)
--       3 since when the quorum is reached (ms; not there: it is not)
--       4 the switch that holds for all (not there: none)
-- ARGV  1 the node   2 whether it is sick (0 or 1)   3 how long its word holds, ms (0: it leaves)
--       4 how many sick nodes a quorum has at least   5 and which share of the living, in millionths
-- reply alive, sick, since when the quorum is reached ("" if it is not), the switch (""), whether
--       the node was known (0 or 1)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holds = tonumber(ARGV[3])
local kept = math.max(holds, 1000) * 10
local alive_until = redis.call('ZSCORE', KEYS[1], ARGV[1])
local known = (alive_until and tonumber(alive_until) > now) and 1 or 0

for place = 1, 2 do
  if holds > 0 and (place == 1 or ARGV[2] == '1') then
    redis.call('ZADD', KEYS[place], string.format('%.0f', now + holds), ARGV[1])
  else
    redis.call('ZREM', KEYS[place], ARGV[1])
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[place], '-inf', string.format('%.0f', now))
  redis.call('PEXPIRE', KEYS[place], string.format('%.0f', kept))
end

local alive = redis.call('ZCARD', KEYS[1])
local sick = redis.call('ZCARD', KEYS[2])
local since = redis.call('GET', KEYS[3])
if sick > 0 and sick >= tonumber(ARGV[4]) and sick * 1000000 >= alive * tonumber(ARGV[5]) then
  since = since or string.format('%.0f', now)
  redis.call('SET', KEYS[3], since, 'PX', string.format('%.0f', kept))
elseif since then
  redis.call('DEL', KEYS[3])
  since = false
end
return {alive, sick, since or '', redis.call('GET', KEYS[4]) or '', known}
