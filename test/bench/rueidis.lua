-- Takes a token of the bucket KEYS[1] and replies 1, or 0 if it has none. ARGV: the microseconds that a
-- token takes to come, and how many the bucket holds.
local per_token, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if bucket[1] then
  tokens = math.min(burst, bucket[1] + math.max(0, now - bucket[2]) / per_token)
end
if tokens < 1 then
  return 0
end

tokens = tokens - 1
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - tokens) * per_token / 1000))
return 1
