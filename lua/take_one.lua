-- Takes tokens from one plain bucket, for a lone call. take.lua describes buckets, and decides all that is unusual. While
-- Redis is not busy, most calls are lone. So this script is written for speed, without a table and a closure.
--
-- KEYS  the key of the bucket
-- ARGV  unit, capacity   of the limit, as in take.lua; capacity is less than 2^52
--       need             credits to take, no removal; left out, with the next two, if it is one unit
--       refill, debt     as in take.lua; left out if they are 1 and 0
-- Reply twice the bucket's credits after the charge, and 1 more if it was charged. For example, 7 means that the bucket
--       was charged and has 3 credits. Nil if this script does not decide: the bucket is blocked, under another limit or
--       broken, its last refill is ahead of the clock, or Redis refused a command. Then nothing is written, and the
--       caller sends take.lua.

local ARGV, key, call, format = ARGV, KEYS[1], redis.pcall, string.format
local capacity, need, refill, debt = ARGV[2] + 0, (ARGV[3] or ARGV[1]) + 0, (ARGV[4] or 1) + 0, (ARGV[5] or 0) + 0
local fill = refill == 1 and capacity or math.ceil(capacity / refill) -- the time to full
local limit = refill == 1 and ARGV[1] .. ' 1 ' .. ARGV[2] or ARGV[1] .. ' ' .. ARGV[4] .. ' ' .. ARGV[2]
local time, hash = call('TIME'), call('HMGET', key, 'tokens', 'last_refill', 'limit')
if time.err then
  return false
end
local now_text = time[1] .. time[2]
if #now_text < 16 then -- microseconds of less than six digits
  now_text = format('%d', time[1] * 1000000 + time[2])
end
local now = now_text + 0
-- An absent bucket is full. The first charge in each period of the time to full sets the TTL to twice that time. So it
-- lasts for all charges of the period.
local tokens, known, lasting = capacity, hash[3] == limit, false
if known then
  local last = tonumber(hash[2])
  tokens = tonumber(hash[1])
  if not (tokens and last and tokens % 1 == 0 and tokens <= capacity and tokens >= -4503599627370496 and
      last % 1 == 0 and last >= 0 and last <= now) then
    return false
  end
  local passed = now - last
  lasting = passed <= now % fill -- periods begin at multiples of fill: a charge of this one has set the TTL
  tokens = passed >= (capacity - tokens) / refill and capacity or tokens + passed * refill
elseif hash.err or hash[1] or hash[2] or hash[3] then
  return false
end
-- A charge with a debt of -1 is always made.
if need > 0 and debt >= 0 and (tokens + debt < need or need > capacity) then
  return 2 * tokens
end
local left = tokens - need
if left > capacity then
  left = capacity
elseif left < -4503599627370496 then
  left = -4503599627370496
end
if left == tokens then -- what changes nothing writes nothing
  return 2 * left + 1
end
if lasting and left >= 0 then
  return call('HSET', key, 'tokens', format('%d', left), 'last_refill', now_text) == 0 and 2 * left + 1
end

local ttl = math.ceil((fill + math.max(fill, (capacity - left) / refill)) / 1000) + 1
local rest = known and call('PTTL', key) or -1
local done = type(rest) == 'number' and call('HSET', key, 'tokens', format('%d', left), 'last_refill', now_text, 'limit', limit)
if type(done) ~= 'number' then
  return false
end
local set = rest < ttl and call('PEXPIRE', key, format('%d', ttl)) or 0 -- no charge makes a TTL shorter
return type(set) == 'number' and 2 * left + 1 or set
