-- Reads a bucket, which take.lua describes, and writes nothing.
--
-- KEYS  the key of the bucket
-- ARGV  the clock: the time in microseconds, or '' for this server's own
-- Reply the time, then the fields tokens, unit, last_refill and limit as text, nil for those that are not there

local function read()
  local now = ARGV[1]
  if now == '' then
    local time = redis.call('TIME') -- seconds, and microseconds within the second
    now = string.format('%.0f', time[1] * 1000000 + time[2])
  end
  local hash = redis.call('HMGET', KEYS[1], 'tokens', 'unit', 'last_refill', 'limit')
  return { now, hash[1], hash[2], hash[3], hash[4] }
end

local ok, reply = pcall(read)
if ok then
  return reply
end
-- As in take.lua, without the line that called.
local text = type(reply) == 'table' and reply.err or reply
return redis.error_reply(string.match(text, '^@user_script: %d+: %-?(.-)%s*$') or text)
