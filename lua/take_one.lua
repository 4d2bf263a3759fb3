-- Takes tokens from one token bucket: take.lua, which describes buckets, for one call of one charge.
--
-- Most scripts are of that form where Redis is not busy. It is put for speed. What one step more takes of its time: to
-- make a number of a string 1 to 2 %, an argument beyond two or four 1 to 2 %, a call of string.format 4 %, a closure
-- that is called by pcall 4 %, ten operations 1 %, a table in the reply 8 %, because Redis looks up the fields of seven
-- kinds of reply in it.
--
-- KEYS  the key of the bucket
-- ARGV  what the charge asks for, as in take.lua: unit, capacity (less than 2^52), need (no removal), refill, debt (not
--       -2); it is no shadow, and has no block
--       the time in microseconds
--       What is as usual is left off: the time, for the server's own clock; then refill and debt, if they are 1 and 0;
--       then need, if it is one unit
-- Reply the bucket's credits after the charge, doubled, and 1 more if it was charged
--
-- Errors of Redis are the reply. If the key is broken, Lua itself raises one: see IsNoBucket in lua.go. It also fails if
-- the bucket is blocked, see IsBlocked, and has then written nothing: take.lua answers such calls.

local err, holds, spare, shut = nil, nil, nil, false
repeat
  local ARGV, key, call, format = ARGV, KEYS[1], redis.pcall, string.format
  local unit, capacity, need = ARGV[1], ARGV[2] + 0, (ARGV[3] or ARGV[1]) + 0
  local limit, refill, fill, debt, server_clock, now_text
  if ARGV[4] then
    refill, debt, now_text, server_clock = ARGV[4] + 0, ARGV[5] + 0, ARGV[6], false
    limit, fill = unit .. ' ' .. ARGV[4] .. ' ' .. ARGV[2], math.ceil(capacity / refill)
  else
    refill, fill, debt = 1, capacity, 0
    limit = unit .. ' 1 ' .. ARGV[2]
  end
  if not now_text then
    server_clock = true
    --: clock
  end
  local now = now_text + 0

  local hash = call('HMGET', key, 'tokens', 'last_refill', 'limit')
  --: read
  if not lasting and hash.err then
    err = hash
    break
  end
  --: pay
  local left = tokens - times * need
  --: write
  if written == 0 or type(written) == 'number' then
    return 2 * left + times
  end
  err = written
until true
--: failure
