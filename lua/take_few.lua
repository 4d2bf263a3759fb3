-- Takes tokens from some token buckets: take.lua, which describes buckets, for one call of several charges.
--
-- KEYS  one key a charge, each different
-- ARGV  five arguments for each charge, what it asks for, as in take.lua: unit, refill, capacity, need (no removal),
--       debt (not -2); it is no shadow
--       the time in microseconds; left off for this server's own clock
-- Reply two integers a charge, as of take.lua; or an error if a key is broken

local reading -- the key whose bucket is read

local function run()
  local KEYS, ARGV, call, format, ceil = KEYS, ARGV, redis.call, string.format, math.ceil
  local count = #KEYS
  local now, now_text = nil, ARGV[5 * count + 1]
  local server_clock = not now_text
  local earliest, integer = -72057594037927936, '%.0f'
  --: clock

  local key, unit, refill, capacity, need, debt, limit, fill, looks
  local tokens, last, lasting, times, spare
  local granted = 1
  local charges = { false, false }
  for i = 1, count do
    local at = 5 * i
    unit, refill, capacity = ARGV[at - 4], ARGV[at - 3] + 0, ARGV[at - 2] + 0
    need, debt = ARGV[at - 1] + 0, ARGV[at] + 0
    limit, fill = unit .. ' ' .. ARGV[at - 3] .. ' ' .. ARGV[at - 2], ceil(capacity / refill)
    looks = need == 0 and debt >= 0
    key = KEYS[i]
    reading = key
    --: read
    --: pay
    if times < granted then
      granted = times
    end
    charges[i] = { unit, refill, capacity, need, limit, fill, tokens, last, lasting }
  end
  reading = false

  local reply = { 0, 0, 0, 0 }
  for i = 1, count do
    local charge = charges[i]
    unit, refill, capacity, need = charge[1], charge[2], charge[3], charge[4]
    limit, fill, tokens, last, lasting = charge[5], charge[6], charge[7], charge[8], charge[9]
    key = KEYS[i]
    local left = tokens - granted * need
    --: write
    reply[2 * i - 1], reply[2 * i] = granted, left
  end
  return reply
end

--: alone
