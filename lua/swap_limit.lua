-- Replaces the value of a policy in the hash of changed limits, if the policy has the expected value, and logs the change.
--
-- KEYS  the key of the hash
-- ARGV  the policy; the value that it must have; the new one, without its time; the entry of the log; the clock: the
--       time in microseconds, or '' for this server's own. An empty value stands for none.
-- Reply the value that the policy has afterwards. If it is not the new one, nothing was changed.
--
-- A value of more than 1,024 bytes was written by hand. Its length stands for it, as in load_limits.lua.
--
-- Values and entries begin with the time of the change and a space. The field '#since' is when the hash was made. '#n'
-- counts the changes, and '#0' to '#49' are the last 50. The key has no TTL, because changes must outlast a restart.

local function kept(field)
  local bytes = redis.call('HSTRLEN', KEYS[1], field)
  if bytes > 1024 then
    return string.format('%.0f bytes', bytes)
  end
  return redis.call('HMGET', KEYS[1], field)[1] or nil
end

local function run() -- which errors.lua calls
  local policy, was, value, entry, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local held, changes = kept(policy) or '', kept('#n')
  if held ~= was then
    return held
  end
  if now == '' then
    local time = redis.call('TIME') -- seconds, and microseconds within the second
    now = time[1] .. string.format('%06d', time[2])
  end
  local n = math.floor(tonumber(changes or '0') or 0) % 9007199254740992 -- whatever somebody has written by hand
  if n ~= n then -- nan, of 'nan' or 'inf': it would stay, and the log with it
    n = 0
  end
  if not changes then
    redis.call('HSET', KEYS[1], '#since', now)
  end
  redis.call('HSET', KEYS[1], '#n', string.format('%.0f', n + 1), '#' .. string.format('%.0f', n % 50), now .. ' ' .. entry)
  if value == '' then
    redis.call('HDEL', KEYS[1], policy)
    return ''
  end
  value = now .. ' ' .. value
  redis.call('HSET', KEYS[1], policy, value)
  return value
end
