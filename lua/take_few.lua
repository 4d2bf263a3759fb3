-- Takes tokens from all of a few plain buckets, or from none. It is take_one.lua for several charges.
-- KEYS  one key a charge, each different
-- ARGV  five arguments for each charge: unit, refill, capacity, need (no removal) and debt (not -2), as in take.lua
-- Reply two integers a charge, as of take.lua. Nil if this script does not decide, as in take_one.lua. Then nothing is
--       written, and the caller sends take.lua.

local KEYS, ARGV, call, format, ceil, tonumber = KEYS, ARGV, redis.pcall, string.format, math.ceil, tonumber
local time = call('TIME') -- seconds, and microseconds within the second
if time.err then
  return false
end
local now_text = time[1] .. time[2]
if #now_text < 16 then -- microseconds of less than six digits
  now_text = format('%d', time[1] * 1000000 + time[2])
end
local now = now_text + 0
local charged, wrote, charges, reply = 1, false, { false, false }, { 0, 0, 0, 0 }
for i = 1, #KEYS do
  local at = 5 * i
  local refill, capacity, need, debt = ARGV[at - 3] + 0, ARGV[at - 2] + 0, ARGV[at - 1] + 0, ARGV[at] + 0
  local fill = refill == 1 and capacity or ceil(capacity / refill)
  local limit = ARGV[at - 4] .. ' ' .. ARGV[at - 3] .. ' ' .. ARGV[at - 2]
  local hash = call('HMGET', KEYS[i], 'tokens', 'last_refill', 'limit')
  local tokens, known, lasting = capacity, hash[3] == limit, false
  if known then
    local last = tonumber(hash[2])
    tokens = tonumber(hash[1])
    if not (tokens and last and tokens % 1 == 0 and tokens <= capacity and tokens >= -4503599627370496 and
        last % 1 == 0 and last >= 0 and last <= now) then
      return false
    end
    local passed = now - last
    lasting = passed <= now % fill
    tokens = passed >= (capacity - tokens) / refill and capacity or tokens + passed * refill
  elseif hash.err or hash[1] or hash[2] or hash[3] then
    return false
  end
  local left = tokens - need
  if need > 0 and debt >= 0 and (left + debt < 0 or need > capacity) then
    charged = 0
  elseif left > capacity then
    left = capacity
  elseif left < -4503599627370496 then
    left = -4503599627370496
  end
  local ttl = not (lasting and left >= 0) and ceil((fill + math.max(fill, (capacity - left) / refill)) / 1000) + 1
  charges[i] = { tokens, left, ttl, limit, known }
end
for i = 1, #KEYS do
  local charge, key, done = charges[i], KEYS[i], 0
  local tokens, left, ttl = charge[1], charge[2], charge[3]
  if charged == 0 or left == tokens then -- what changes nothing writes nothing
    left = tokens
  elseif not ttl then
    done = call('HSET', key, 'tokens', format('%d', left), 'last_refill', now_text)
  else
    local rest = charge[5] and call('PTTL', key) or -1
    done = type(rest) ~= 'number' and rest or
      call('HSET', key, 'tokens', format('%d', left), 'last_refill', now_text, 'limit', charge[4])
    if type(done) == 'number' and rest < ttl then
      wrote, done = true, call('PEXPIRE', key, format('%d', ttl))
    end
  end
  if type(done) ~= 'number' then
    return wrote and done
  end
  wrote = wrote or left ~= tokens
  reply[2 * i - 1], reply[2 * i] = charged, left
end
return reply
