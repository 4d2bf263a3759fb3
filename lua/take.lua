-- Takes tokens from token buckets: many calls in one script, each of which is charged whole or not at all.
--
-- Redis runs a script to its end before it does anything else, so nothing here can be interleaved. Lua's
-- numbers are doubles, exact for integers up to 2^53; the Go side (internal/bucket, which holds the same
-- arithmetic and the reasons for it) only makes limits whose every value stays within that.
--
-- A bucket is one hash:
--   tokens       what it holds, in credits; below zero while tokens are reserved that are still to come
--   unit         how many credits one token is worth, so that tokens/unit is the number of tokens
--   last_refill  when it was last charged, in microseconds of Unix time
--   expires      before which its TTL does not run out, likewise; 0 if that is unknown, to set it anew
-- A bucket that is not there is full. So a key may expire once its bucket has had the time to refill.
--
-- KEYS  one key a charge, in the order of the charges. A key may appear in many calls, but once in each.
-- ARGV  the clock: the time in microseconds, or '' for this server's own
--       the number of terms, then six arguments for each: what a charge asks for, listed once for all the
--       charges that ask the same
--         unit, refill, capacity   the limit: credits a token, credits a microsecond, credits when full
--         need                     credits to take; 0 to look, below 0 to give back
--         debt                     how many credits below zero the charge may go, to wait for them
--         shadow                   1 if it vetoes nothing, else 0
--       then for each run of calls that differ in their keys only: how many they are, how many identical
--       calls each stands for, how many charges it has, and for each charge the number of its term, from 1
-- Reply two integers a charge: how many of the identical calls charged it, and the bucket's credits after
--       them. The Go side works out the rest (remaining, retry after) from these. In a script of several
--       calls, a charge whose key holds no bucket is answered with -1, and so are all charges of a call
--       that it was to veto; a lone call fails by its error instead.

-- What follows is called once or more for each of hundreds of keys. A string becomes a number where it is
-- added to one, in a third of the time that tonumber takes. Local variables are cheap, tables are not.

local call, pcall, ceil, floor, format = redis.call, pcall, math.ceil, math.floor, string.format
local KEYS, ARGV = KEYS, ARGV

-- Redis prints the numbers it is given as %.17g, which takes longer than to print integers. A server of 32 bits
-- cannot print integers of 53, and does without.
local integer = format('%d', 4503599627370497) == '4503599627370497' and '%d' or '%.0f'

local server_clock = ARGV[1] == ''
local now
if server_clock then
  local time = call('TIME') -- seconds, and microseconds within the second
  now = time[1] * 1000000 + time[2]
else
  now = ARGV[1] + 0
end
local now_text = format(integer, now)

local terms = { false } -- tables begin with room for what most scripts need: to grow takes time
local at = 2 -- where we are in ARGV
for i = 1, ARGV[2] + 0 do
  terms[i] = { ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] == '1' }
  at = at + 6
end

-- The term of the charge that is looked at.
local unit, refill, capacity, need, debt, shadow

local function use(number)
  local term = terms[number + 0]
  unit, refill, capacity, need, debt, shadow = term[1], term[2], term[3], term[4], term[5], term[6]
end

-- Returns tokens of one unit as tokens of another, rounded down. Only after a limit was changed.
local function rescale(tokens, from, to)
  local whole = floor(tokens / from)
  local part, result = tokens - whole * from, 0
  if part * to < 9007199254740992 then
    result = floor(part * to / from)
  else
    -- The product does not fit a double: multiply and divide together, a bit of `to` at a time.
    local rest, bit = 0, 4503599627370496
    while bit >= 1 do
      result, rest = result * 2, rest * 2
      if rest >= from then
        result, rest = result + 1, rest - from
      end
      if to % (bit * 2) >= bit then
        rest = rest + part
        if rest >= from then
          result, rest = result + 1, rest - from
        end
      end
      bit = bit / 2
    end
  end
  result = whole * to + result
  if result < -4503599627370496 then
    return -4503599627370496
  end
  return result
end

-- Returns what the bucket of a key holds now, when that was, and when its TTL runs out: 0 if that must be set
-- anew, and -1 if the bucket must be written even if it is not charged.
local function read(key)
  local hash = call('HMGET', key, 'tokens', 'unit', 'last_refill', 'expires')
  local tokens = hash[1]
  if not tokens then
    return capacity, now, 0
  end
  tokens = tokens + 0
  local last, expires = hash[3] + 0, hash[4] + 0
  if hash[2] + 0 ~= unit then
    tokens, expires = rescale(tokens, hash[2] + 0, unit), 0
  end
  if tokens > capacity then
    tokens = capacity
  end
  if last < now then
    -- Compared so, the product cannot overflow.
    if now - last >= (capacity - tokens) / refill then
      return capacity, now, expires
    end
    return tokens + (now - last) * refill, now, expires
  end
  if server_clock and last - now > ceil(capacity / refill) then
    -- Time that runs backwards neither grants nor drains. But a last refill further ahead than the time to
    -- full means that the clock was set back, as after a failover: without this the bucket would be frozen
    -- until then. Only our own clock can tell.
    return tokens, now, -1
  end
  return tokens, last, expires
end

local function write(key, tokens, last, expires)
  local tokens_text, last_text = format(integer, tokens), last == now and now_text or format(integer, last)
  local missing = (capacity - tokens) / refill
  if server_clock and expires - last >= missing then
    call('HSET', key, 'tokens', tokens_text, 'last_refill', last_text)
    return
  end
  -- Twice the time to full holds for one such time: until then no charge has to come back here. It counts
  -- from the last refill, which is ahead of a clock that was set back a little. A caller's clock is not the
  -- one that TTLs run by, so under it nothing is relied on for later.
  local fill = ceil(capacity / refill)
  local ttl = fill + (missing > fill and ceil(missing) or fill)
  expires = 0
  if server_clock then
    expires = last + ttl
    ttl = expires - now
  end
  call('HSET', key, 'tokens', tokens_text, 'unit', unit, 'last_refill', last_text, 'expires', expires)
  call('PEXPIRE', key, ceil(ttl / 1000) + 1)
end

local reply = { 0, 0 }
-- Of the charges of the call that is looked at: what read returned, and how many calls the bucket can pay.
local tokens, lasts, expiries, fits = { 0 }, { 0 }, { 0 }, { 0 }
local done = 0 -- charges of earlier calls
at = at + 1
while ARGV[at] do
  local calls, count, charges = ARGV[at] + 0, ARGV[at + 1] + 0, ARGV[at + 2] + 0
  local alone = calls == 1 and not ARGV[at + 3 + charges] and done == 0
  if charges == 1 then
    use(ARGV[at + 3])
  end
  for _ = 1, calls do
    local granted = count -- how many of the identical calls every charge can pay

    for i = 1, charges do
      if charges > 1 then
        use(ARGV[at + 2 + i])
      end
      local ok, found, last, expires = true
      if alone and not shadow then
        found, last, expires = read(KEYS[done + i])
      else
        ok, found, last, expires = pcall(read, KEYS[done + i])
      end
      local pays = count
      if not ok then
        pays = -1
      elseif need > 0 then
        if need > capacity or found + debt < need then
          pays = 0
        elseif count > 1 then
          pays = floor((found + debt) / need)
        end
      end
      if pays < granted and not shadow then
        granted = pays
      end
      tokens[i], lasts[i], expiries[i], fits[i] = found, last, expires, pays
    end

    for i = 1, charges do
      local charge = done + i
      local taken = fits[i] < granted and fits[i] or granted
      local left = tokens[i]
      if taken < 0 then
        left = 0
      else
        if charges > 1 then
          use(ARGV[at + 2 + i])
        end
        left = left - taken * need
        if left > capacity then
          left = capacity
        end
        if left ~= tokens[i] then -- what changes nothing writes nothing
          write(KEYS[charge], left, lasts[i], expiries[i])
        elseif expiries[i] < 0 then
          call('HSET', KEYS[charge], 'last_refill', now_text, 'expires', 0)
        end
      end
      reply[2 * charge - 1], reply[2 * charge] = taken, left
    end
    done = done + charges
  end
  at = at + 3 + charges
end

return reply
