-- swap: write a value if the old one is still there.
-- KEYS[1]  the key
-- ARGV     the old value ('' = absent), the new one ('' = delete), ms until it expires (0 = never)
-- reply    1 if it was written, 0 if somebody else was faster

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif ARGV[3] == '0' then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
