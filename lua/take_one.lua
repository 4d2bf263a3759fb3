-- Takes tokens from one token bucket: take.lua, which describes buckets, for one call of one charge.
--
-- Most scripts are of that form where Redis is not busy. It is put for speed: a closure or a conversion more takes
-- 1 % of its time, a table in the reply 8 %, because Redis looks up the fields of seven kinds of reply in it.
--
-- KEYS  the key of the bucket
-- ARGV  what the charge asks for, as in take.lua: unit, refill, capacity (less than 2^52), need (no removal), debt (not
--       -2); it is no shadow
--       the time in microseconds; left off for this server's own clock, then so is a debt of 0
-- Reply the bucket's credits after the charge, doubled, and 1 more if it was charged; or an error if the key is broken

local reading -- the key, while its bucket is read

local function run()
  local ARGV, key, call, format, ceil = ARGV, KEYS[1], redis.call, string.format, math.ceil
  local unit, refill, capacity, need, debt = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, 0
  if ARGV[5] then
    debt = ARGV[5] + 0
  end
  local limit, fill = unit .. ' ' .. ARGV[2] .. ' ' .. ARGV[3], ceil(capacity / refill)
  local looks = need == 0 and debt >= 0

  local now, now_text, server_clock = nil, ARGV[6], not ARGV[6]
  local earliest, integer = -72057594037927936, '%.0f'
  --: clock

  local tokens, last, lasting, times, spare
  reading = key
  --: read
  reading = false
  --: pay
  local left = tokens - times * need
  --: write
  return 2 * left + times
end

--: alone
