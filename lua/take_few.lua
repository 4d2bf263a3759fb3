-- Takes tokens from some token buckets: take.lua, which describes buckets, for one call of several charges.
--
-- KEYS  one key a charge, each different
-- ARGV  five arguments for each charge, what it asks for, as in take.lua: unit, refill, capacity, need (no removal),
--       debt (not -2); it is no shadow, and has no block
--       the time in microseconds; left off for this server's own clock
-- Reply two integers a charge, as of take.lua
--
-- It fails as take_one.lua does.

local err, holds, spare, shut = nil, nil, nil, false
repeat
  local KEYS, ARGV, call, format = KEYS, ARGV, redis.pcall, string.format
  local count = #KEYS
  local now_text = ARGV[5 * count + 1]
  local server_clock = not now_text
  if server_clock then
    --: clock
  end
  local now = now_text + 0

  local granted, charges = 1, { false, false }
  for i = 1, count do
    local key, at = KEYS[i], 5 * i
    local unit, refill, capacity, need, debt = ARGV[at - 4], 1, ARGV[at - 2] + 0, ARGV[at - 1] + 0, ARGV[at] + 0
    local limit, fill = unit .. ' ' .. ARGV[at - 3] .. ' ' .. ARGV[at - 2], capacity
    if ARGV[at - 3] ~= '1' then
      refill = ARGV[at - 3] + 0
      fill = math.ceil(capacity / refill)
    end
    local hash = call('HMGET', key, 'tokens', 'last_refill', 'limit')
    --: read
    if not lasting and hash.err then
      err = hash
      break
    end
    --: pay
    if times < granted then
      granted = times
    end
    charges[i] = { unit, refill, capacity, need, limit, fill, tokens, last, lasting }
  end
  if err then
    break
  end

  local reply = { 0, 0, 0, 0 }
  for i = 1, count do
    local charge, key = charges[i], KEYS[i]
    local unit, refill, capacity, need = charge[1], charge[2], charge[3], charge[4]
    local limit, fill, tokens, last, lasting = charge[5], charge[6], charge[7], charge[8], charge[9]
    local left = tokens - granted * need
    --: write
    if type(written) ~= 'number' then
      err = written
      break
    end
    reply[2 * i - 1], reply[2 * i] = granted, left
  end
  if not err then
    return reply
  end
until true
--: failure
