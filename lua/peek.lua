-- Reads a bucket, which take.lua describes, and writes nothing.
--
-- KEYS  the key of the bucket
-- ARGV  the clock: the time in microseconds, or '' for this server's own
-- Reply the time, then the fields tokens, last_refill, limit, blocked_limit, blocked_until, blocked_since, blocked_reason,
--       used and until as text, nil for those that are not there. For slots, tokens are those that are free

local function run() -- which errors.lua calls
  local now = ARGV[1]
  if now == '' then
    local time = redis.call('TIME') -- seconds, and microseconds within the second
    now = string.format('%.0f', time[1] * 1000000 + time[2])
  end
  local hash = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill', 'limit', 'blocked_limit', 'blocked_until',
    'blocked_since', 'blocked_reason', 'used', 'until')
  local limit = (hash[3] == 'blocked' or hash[3] == 'locked') and hash[4] or hash[3]
  local free = string.match(limit or '', '^(%d+) at once$')
  if free then
    local fields = redis.call('HGETALL', KEYS[1])
    for i = 1, #fields, 2 do
      if string.sub(fields[i], 1, 8) == 'held_by:' then
        local count, ends = string.match(fields[i + 1], '^(%d+) (%-?%d+) %d+$')
        if not count then
          error('ERR the key holds no bucket', 0)
        end
        free = ends - now > 0 and free - count or free
      end
    end
    hash[1] = string.format('%.0f', free + 0) -- a number, for miniredis
  end
  return { now, hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7], hash[8], hash[9] }
end
