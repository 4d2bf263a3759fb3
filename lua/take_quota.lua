-- Takes tokens from the bucket of a quota, for a lone call. It is take_one.lua for quotas.
-- KEYS  the key of the bucket
-- ARGV  capacity       the tokens of the quota, fewer than 2^52
--       limit          such as "100000 per month Europe/Berlin"
--       begins, ends   the first microsecond of the period, and its end
--       need           tokens to take, not below 0; left out if it is 1
-- Reply as of take_one.lua, and how many microseconds are left of the period; or only the time, if it is not in the period

local ARGV, key, call, format = ARGV, KEYS[1], redis.pcall, string.format
local capacity, limit, ends, need = ARGV[1] + 0, ARGV[2], ARGV[4] + 0, (ARGV[5] or 1) + 0
local time, hash = call('TIME'), call('HMGET', key, 'used', 'until', 'limit')
if time.err or hash.err then
  return false
end
local now = time[1] * 1000000 + time[2]
local used, last, known, lasting = 0, nil, hash[3] == limit, false
if known then
  used, last = tonumber(hash[1]), hash[2] == ARGV[4] and ends or tonumber(hash[2])
  if not (used and last and used % 1 == 0 and used >= 0 and used <= 9007199254740992 and
      last % 1 == 0 and last >= 0 and last <= ends) then
    return false -- also if the period, which began with another time zone, goes on for longer
  end
  lasting = last > now
elseif hash[1] or hash[2] or hash[3] then
  return false
end
if now < ARGV[3] + 0 or not lasting and now >= ends then
  return { now }
elseif lasting then
  ends = last
else
  used = 0
end
local left = capacity - used
if need > left or need == 0 then -- what changes nothing writes nothing
  return { need == 0 and 2 * left + 1 or 2 * left, ends - now }
end
local after, reply = format('%d', used + need), { 2 * (left - need) + 1, ends - now }
if lasting then
  return call('HSET', key, 'used', after) == 0 and reply
end

-- Keys that expire all at once would hold up other clients: the microsecond of the charge spreads them over a minute.
local ttl, rest = math.ceil((ends - now) / 1000 + 1000 + time[2] * 0.06), known and call('PTTL', key) or -1
local done = type(rest) == 'number' and call('HSET', key, 'used', after, 'until', ARGV[4], 'limit', limit)
if type(done) ~= 'number' then
  return false
end
local set = rest < ttl and call('PEXPIRE', key, format('%d', ttl)) or 0 -- no charge makes a TTL shorter
return type(set) == 'number' and reply or set
