-- Blocks a bucket from now on, or ends its block or lock. A new block replaces an earlier block or lock. The tokens of the
-- bucket stay, and so do slots that are held. take.lua describes buckets.
--
-- KEYS  the key of the bucket
-- ARGV  the clock: the time in microseconds, or '' for this server's own
--       for how many microseconds to block the bucket; 0 ends its block
--       who has blocked it and why
-- Reply 1 if the bucket was written, else 0

local function run() -- which errors.lua calls
  local key, now, span = KEYS[1], tonumber(ARGV[1]), ARGV[2] + 0
  if not now then
    local time = redis.call('TIME') -- seconds, and microseconds within the second
    now = time[1] * 1000000 + time[2]
  end
  local hash = redis.call('HMGET', key, 'limit', 'blocked_limit', 'tokens', 'used')
  local blocked = hash[1] == 'blocked' or hash[1] == 'locked'
  local limit = hash[blocked and 2 or 1]
  local known = string.match(limit or '', '^%d+ %d+ %d+$') and hash[3] or string.match(limit or '', '^%d+ per ') and hash[4]
    or string.match(limit or '', '^%d+ at once$')
  if not known and (limit or hash[3] or hash[4]) then
    error('ERR the key holds no bucket', 0)
  end

  local text = string.format('%.0f', now)
  if span > 0 then
    -- The TTL is a minute longer than the block, because a caller's clock may be behind.
    local ttl, rest = math.ceil(span / 1000) + 60000, redis.call('PTTL', key)
    redis.call('HSET', key, 'limit', 'blocked', 'blocked_until', string.format('%.0f', now + span),
      'blocked_since', text, 'blocked_reason', ARGV[3])
    if limit then
      redis.call('HSET', key, 'blocked_limit', limit)
    end
    if rest < ttl then -- rest is -2 if there is no key
      redis.call('PEXPIRE', key, ttl)
    end
  elseif not blocked then
    return 0
  elseif limit then
    redis.call('HSET', key, 'limit', limit, 'blocked_until', text)
  else
    redis.call('PEXPIRE', key, 0) -- the bucket is full
  end
  return 1
end
