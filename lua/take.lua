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
--       then for each call: how many identical calls it stands for, how many charges it has, and for each
--       charge the number of its term, from 1
-- Reply two integers a charge: how many of the identical calls charged it, and the bucket's credits
--       after them. The Go side works out the rest (remaining, retry after) from these.

-- A string becomes a number where it is added to one, in a third of the time that tonumber takes.

local call, ceil, floor, format = redis.call, math.ceil, math.floor, string.format
local KEYS, ARGV = KEYS, ARGV

local server_clock = ARGV[1] == ''
local now
if server_clock then
  local time = call('TIME') -- seconds, and microseconds within the second
  now = time[1] * 1000000 + time[2]
else
  now = ARGV[1] + 0
end

local terms = { false } -- tables begin with room for what most calls need: to grow takes time
local at = 2 -- where we are in ARGV
for i = 1, ARGV[2] + 0 do
  terms[i] = {
    unit = ARGV[at + 1] + 0,
    refill = ARGV[at + 2] + 0,
    capacity = ARGV[at + 3] + 0,
    need = ARGV[at + 4] + 0,
    debt = ARGV[at + 5] + 0,
    shadow = ARGV[at + 6] == '1',
  }
  at = at + 6
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

local buckets = {} -- by key: each is read once and written once, however many calls it is in

local function read(key)
  local hash = call('HMGET', key, 'tokens', 'unit', 'last_refill', 'expires')
  local bucket = {
    tokens = hash[1] and hash[1] + 0, -- false: it is not there, and so full
    unit = hash[1] and hash[2] + 0,
    last = hash[1] and hash[3] + 0,
    expires = hash[1] and hash[4] + 0,
    changed = false,
    term = false, -- of its last charge
    -- Of the call that is looked at: what the bucket holds now, and how many charges it can pay.
    now_tokens = 0,
    now_last = 0,
    fits = 0,
  }
  buckets[key] = bucket
  return bucket
end

local reply = { 0, 0 }
local done = 0 -- charges of earlier calls
at = at + 1
while ARGV[at] do
  local count, charges = ARGV[at] + 0, ARGV[at + 1] + 0
  local granted = count -- how many of the identical calls every charge can pay

  for i = 1, charges do
    local key, term = KEYS[done + i], terms[ARGV[at + 1 + i] + 0]
    local bucket = buckets[key] or read(key)
    local capacity = term.capacity
    local tokens, last = capacity, now

    -- What the bucket holds now.
    if bucket.tokens then
      tokens, last = bucket.tokens, bucket.last
      if bucket.unit ~= term.unit then
        tokens = rescale(tokens, bucket.unit, term.unit)
      end
      if tokens > capacity then
        tokens = capacity
      end
      if last < now then
        -- Compared so, the product cannot overflow.
        if now - last >= (capacity - tokens) / term.refill then
          tokens = capacity
        else
          tokens = tokens + (now - last) * term.refill
        end
        last = now
      elseif server_clock and last - now > ceil(capacity / term.refill) then
        -- Time that runs backwards neither grants nor drains. But a last refill further ahead than the
        -- time to full means that the clock was set back, as after a failover: without this the bucket
        -- would be frozen until then. Only our own clock can tell.
        last = now
        bucket.last, bucket.expires, bucket.changed = now, 0, true
      end
    end

    -- How many it can pay.
    local need, fits = term.need, count
    if need > 0 then
      if need > capacity or tokens + term.debt < need then
        fits = 0
      elseif count > 1 then
        fits = floor((tokens + term.debt) / need)
      end
    end
    if fits < granted and not term.shadow then
      granted = fits
    end
    bucket.now_tokens, bucket.now_last, bucket.fits = tokens, last, fits
  end

  for i = 1, charges do
    local charge = done + i
    local bucket, term, taken = buckets[KEYS[charge]], terms[ARGV[at + 1 + i] + 0], granted
    if term.shadow and bucket.fits < taken then
      taken = bucket.fits
    end
    local left = bucket.now_tokens - taken * term.need
    if left > term.capacity then
      left = term.capacity
    end
    if left ~= bucket.now_tokens then -- what changes nothing writes nothing
      bucket.tokens, bucket.last, bucket.term, bucket.changed = left, bucket.now_last, term, true
      if bucket.unit ~= term.unit then
        bucket.unit, bucket.expires = term.unit, 0 -- new, or under another limit: everything is written
      end
    end
    reply[2 * charge - 1], reply[2 * charge] = taken, left
  end

  done = done + charges
  at = at + 2 + charges
end

-- Redis prints the numbers it is given as %.17g, which takes longer than to print integers. A server of 32 bits
-- cannot print integers of 53, and does without.
local integer = string.format('%d', 4503599627370497) == '4503599627370497' and '%d' or '%.0f'

-- Every write is last, so that a call that fails above has changed nothing.
for key, bucket in pairs(buckets) do
  if bucket.changed then
    local tokens, last, term = format(integer, bucket.tokens), format(integer, bucket.last), bucket.term
    if not term then -- it was only anchored anew
      call('HSET', key, 'last_refill', last, 'expires', 0)
    elseif server_clock and bucket.expires - bucket.last >= (term.capacity - bucket.tokens) / term.refill then
      call('HSET', key, 'tokens', tokens, 'last_refill', last)
    else
      -- Twice the time to full holds for one such time: until then no charge has to come back here. It
      -- counts from the last refill, which is ahead of a clock that was set back a little. A caller's
      -- clock is not the one that TTLs run by, so under it nothing is relied on for later.
      local fill = ceil(term.capacity / term.refill)
      local missing = ceil((term.capacity - bucket.tokens) / term.refill)
      local ttl = fill + (missing > fill and missing or fill)
      local expires = 0
      if server_clock then
        expires = bucket.last + ttl
        ttl = expires - now
      end
      call('HSET', key, 'tokens', tokens, 'unit', bucket.unit, 'last_refill', last, 'expires', expires)
      call('PEXPIRE', key, ceil(ttl / 1000) + 1)
    end
  end
end

return reply
