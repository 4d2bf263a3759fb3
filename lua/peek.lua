-- Reads a bucket, which take.lua describes, and writes nothing.
--
-- KEYS  the key of the bucket
-- ARGV  the clock: the time in microseconds, or '' for this server's own
-- Reply the time, then the fields tokens, last_refill, limit, blocked_limit, blocked_until, blocked_since, blocked_reason,
--       used and until as text, nil for those that are not there

local function run() -- which errors.lua calls
  local now = ARGV[1]
  if now == '' then
    local time = redis.call('TIME') -- seconds, and microseconds within the second
    now = string.format('%.0f', time[1] * 1000000 + time[2])
  end
  local hash = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill', 'limit', 'blocked_limit', 'blocked_until',
    'blocked_since', 'blocked_reason', 'used', 'until')
  return { now, hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7], hash[8], hash[9] }
end
