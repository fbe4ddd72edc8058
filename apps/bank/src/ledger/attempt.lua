-- Decides an attempt and records it.
-- KEYS: failures by address, failures by login, last success by login, all attempts
-- ARGV: at, user ('' if the login does not exist), login, address, whether the password is right (1), ban after, lock after
local at, user, login, address, right = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local known = user ~= ''
local of_address = tonumber(redis.call('ZSCORE', KEYS[1], address) or 0)
local of_login = known and tonumber(redis.call('ZSCORE', KEYS[2], login) or 0) or 0
local verdict = 'wrong'
if of_address >= tonumber(ARGV[6]) then
  verdict = 'banned'
elseif of_login >= tonumber(ARGV[7]) then
  verdict = 'locked'
elseif right == '1' then
  verdict = 'success'
end
local previous = false
if verdict == 'success' then
  previous = redis.call('HGET', KEYS[3], login)
  redis.call('HSET', KEYS[3], login, at .. ' ' .. address)
end
-- A counter of 0 is kept: the export has a row for every user and address that has ever made an attempt.
if verdict == 'success' then
  redis.call('ZADD', KEYS[1], 0, address)
  redis.call('ZADD', KEYS[2], 0, login)
else
  redis.call('ZINCRBY', KEYS[1], 1, address)
  if known then
    redis.call('ZINCRBY', KEYS[2], 1, login)
  end
end
redis.call('XADD', KEYS[4], '*', 'at', at, 'user', user, 'login', login, 'address', address,
  'succeeded', verdict == 'success' and 1 or 0)
return {verdict, previous}
