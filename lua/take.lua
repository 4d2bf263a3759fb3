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
--   expires      when its TTL runs out, likewise; 0 if that is unknown
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

local call, floor, ceil = redis.call, math.floor, math.ceil

local server_clock = ARGV[1] == ''
local now
if server_clock then
  local time = call('TIME') -- seconds, and microseconds within the second
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[1])
end

local terms = {}
local at = 2 -- where we are in ARGV
for i = 1, tonumber(ARGV[2]) do
  local unit, refill, capacity = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  terms[i] = {
    unit = unit,
    refill = refill,
    capacity = capacity,
    need = tonumber(ARGV[at + 4]),
    debt = tonumber(ARGV[at + 5]),
    shadow = ARGV[at + 6] == '1',
    fill = ceil(capacity / refill), -- microseconds from empty to full
  }
  at = at + 6
end

-- Returns tokens of one unit as tokens of another, rounded down. Only after a limit was changed.
local function rescale(tokens, from, to)
  local whole = floor(tokens / from)
  local part, result = tokens - whole * from, 0
  if part * to <= 9007199254740992 then
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
local changed = {}

local function load(key)
  local hash = call('HMGET', key, 'tokens', 'unit', 'last_refill', 'expires')
  local bucket = { key = key, expires = 0 }
  if hash[1] then
    bucket.tokens, bucket.unit = tonumber(hash[1]), tonumber(hash[2])
    bucket.last_refill, bucket.expires = tonumber(hash[3]), tonumber(hash[4])
    if not (bucket.tokens and bucket.unit and bucket.last_refill and bucket.expires) then
      error('the hash at ' .. key .. ' is not a bucket')
    end
  end
  buckets[key] = bucket
  return bucket
end

-- Returns the tokens that bucket holds now under term, and when it was last refilled then.
local function advance(bucket, term)
  local tokens, last, capacity = bucket.tokens, bucket.last_refill, term.capacity
  if not tokens then
    return capacity, now
  end
  if bucket.unit ~= term.unit then
    tokens = rescale(tokens, bucket.unit, term.unit)
  end
  if tokens > capacity then
    tokens = capacity
  end
  local elapsed = now - last
  if elapsed <= 0 then
    return tokens, last -- time that runs backwards neither grants nor drains
  end
  if elapsed >= (capacity - tokens) / term.refill then -- compared so, the product cannot overflow
    return capacity, now
  end
  return tokens + elapsed * term.refill, now
end

local function change(bucket, tokens, last)
  bucket.tokens, bucket.last_refill = tokens, last
  if not bucket.changed then
    bucket.changed = true
    changed[#changed + 1] = bucket
  end
end

local reply = {}
local done = 0 -- charges of earlier calls
local call_buckets, call_tokens, call_last, call_fits, call_terms = {}, {}, {}, {}, {}
at = at + 1
while ARGV[at] do
  local count, charges = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local granted = count -- how many of the identical calls every charge can pay

  for i = 1, charges do
    local key, term = KEYS[done + i], terms[tonumber(ARGV[at + 1 + i])]
    local bucket = buckets[key] or load(key)

    -- A last refill further ahead than the time to full means that the clock was set back, as after a
    -- failover: without this the bucket would be frozen until then. Only our own clock can tell.
    if server_clock and bucket.tokens and bucket.last_refill - now > term.fill then
      change(bucket, bucket.tokens, now)
    end

    local tokens, last = advance(bucket, term)
    local fits = count
    if term.need > 0 then
      fits = floor((tokens + term.debt) / term.need)
      if fits < 0 or term.need > term.capacity then
        fits = 0
      elseif fits > count then
        fits = count
      end
    end
    if fits < granted and not term.shadow then
      granted = fits
    end
    call_buckets[i], call_tokens[i], call_last[i], call_fits[i], call_terms[i] = bucket, tokens, last, fits, term
  end

  for i = 1, charges do
    local term, tokens, taken = call_terms[i], call_tokens[i], granted
    if term.shadow and call_fits[i] < taken then
      taken = call_fits[i]
    end
    local left = tokens - taken * term.need
    if left > term.capacity then
      left = term.capacity
    end
    if left ~= tokens then -- a call that changes nothing writes nothing
      local bucket = call_buckets[i]
      change(bucket, left, call_last[i])
      bucket.term = term
      if bucket.unit ~= term.unit then
        bucket.unit, bucket.expires = term.unit, 0 -- new, or under another limit: everything is written
      end
    end
    reply[#reply + 1] = taken
    reply[#reply + 1] = left
  end

  done = done + charges
  at = at + 2 + charges
end

-- Every write is last, so that a call that fails above has changed nothing.
for i = 1, #changed do
  local bucket = changed[i]
  local key, tokens, last, term = bucket.key, bucket.tokens, bucket.last_refill, bucket.term
  local missing = term and ceil((term.capacity - tokens) / term.refill) or 0
  if server_clock and bucket.expires >= now + missing then
    call('HSET', key, 'tokens', tokens, 'last_refill', last)
  else
    -- Twice the time to full holds for one such time: until then no charge has to come back here. A
    -- caller's clock is not the one that TTLs run by, so under it nothing is relied on for later.
    local ttl = (missing > term.fill and missing or term.fill) + term.fill
    local expires = server_clock and now + ttl or 0
    call('HSET', key, 'tokens', tokens, 'unit', bucket.unit, 'last_refill', last, 'expires', expires)
    call('PEXPIRE', key, ceil(ttl / 1000) + 1)
  end
end

return reply
