-- Takes tokens from the bucket of a quota, for a lone call. It is take_one.lua for quotas.
--
-- KEYS  the key of the bucket
-- ARGV  the capacity, the limit, such as "100000 per month Europe/Berlin", and the first microsecond and the end of its period
--       need, debt   as in take.lua, no removal and not -2; left out if they are 1 and 0
-- Reply as of take_one.lua, and how many microseconds are left of the period. Only the time, if it is not in the period.

local ARGV, key, call = ARGV, KEYS[1], redis.pcall
local capacity, limit, ends, need, debt = ARGV[1] + 0, ARGV[2], ARGV[4] + 0, (ARGV[5] or 1) + 0, (ARGV[6] or 0) + 0
local time, hash = call('TIME'), call('HMGET', key, 'used', 'until', 'limit')
if time.err or hash.err then
  return false
end
local now = time[1] * 1000000 + time[2]
local used, last, known, lasting = 0, nil, hash[3] == limit, false
if known then
  used, last = tonumber(hash[1]), hash[2] == ARGV[4] and ends or tonumber(hash[2])
  if not (used and last and used % 1 == 0 and used >= 0 and used <= 9007199254740992 and last % 1 == 0 and last <= ends) then
    return false -- also if a charge with another time zone began the period, and it ends later
  end
  lasting = last > now
elseif hash[1] or hash[2] or hash[3] then
  return false
end
if lasting then
  ends = last -- of the period that has begun
elseif now >= ends or now < ARGV[3] + 0 then
  return { now }
else
  used = 0
end
local left = capacity - used
if need > left and need > 0 and debt >= 0 then
  return { 2 * left, ends - now }
end
left = left - need
if left > capacity then
  left = capacity
elseif left < -4503599627370496 then
  left = -4503599627370496
end
local after, reply = capacity - left, { 2 * left + 1, ends - now }
if after == used then -- what changes nothing writes nothing
  return reply
end
after = string.format('%d', after)
if lasting then
  return call('HSET', key, 'used', after) == 0 and reply
end

local ttl = math.ceil((ends - now) / 1000 + 1000 + time[2] * 0.06) -- keys that expire all at once hold up other clients
local rest = known and call('PTTL', key) or -1
if type(rest) ~= 'number' or type(call('HSET', key, 'used', after, 'until', ARGV[4], 'limit', limit)) ~= 'number' then
  return false
end
if rest < ttl then -- no charge makes a TTL shorter
  local set = call('PEXPIRE', key, string.format('%d', ttl))
  if type(set) ~= 'number' then
    return set
  end
end
return reply
