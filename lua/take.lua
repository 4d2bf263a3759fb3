-- Takes tokens from token buckets. A script has many calls. Each call charges all of its buckets, or none.
--
-- Redis runs a script to its end before it does anything else. So no other call comes between. Lua's numbers are
-- doubles, which are exact for integers up to 2^53. internal/bucket in Go has the same arithmetic, with the reasons for
-- it. It makes only limits whose values all stay within 2^53.
--
-- A bucket is one hash:
--   tokens         the credits after the last charge; below zero in debt
--   last_refill    the time of the last charge, in microseconds of Unix time
--   limit          the limit of the last charge, as "unit refill capacity": a token is worth unit credits, each
--                  microsecond adds refill credits, and a full bucket has capacity credits. For a blocked bucket it
--                  is "blocked", or "locked" if a charge has locked it
--   blocked_limit  the limit of a blocked bucket
--   blocked_until, blocked_since, blocked_reason   the times of the last block or lock, and who has made it and why
-- For example, tokens 3000000, limit "1000000 1 5000000": 3 tokens of 5, and one more each second.
--
-- The bucket of a quota, which refills all at once when a period of the calendar begins, has instead:
--   used, until    the tokens that were used in the period, and the end of it, in microseconds
--   limit          such as "100000 per month Europe/Berlin"
-- A period that has begun keeps its end, whatever the charges say, because replicas may disagree about the time zone. Only
-- a quota of another kind of period may make it shorter. A bucket that goes from one kind of limit to another is full.
--
-- The slots of a concurrency limit are held by holders, which are replicas under random names. The hash has instead:
--   limit             such as "3 at once"
--   held_by:<holder>  how many slots it holds, until when in microseconds, and the sequence number of its last charge
--   waits:<holder>    since when its first caller waits for a slot, and until when that counts
-- For example, 8ab6c2b21f0cd2b4 holds two slots, and 3f0e54a1b2c3d4e5 one, for a caller of which none is left:
--   limit "3 at once", held_by:8ab6c2b21f0cd2b4 "2 1780000015000000 41", held_by:3f0e54a1b2c3d4e5 "1 1780000012250000 7",
--   waits:3f0e54a1b2c3d4e5 "1779999999100000 1780000000250000"
-- Each charge says how many slots its holder has, so that one that is lost, late or sent twice does no harm. Fields that
-- have ended count for nothing. The next write removes them.
--
-- An absent bucket is full. So a key may expire when its bucket has had the time to refill, and not while the bucket is
-- blocked. No PEXPIRE makes a TTL shorter. A blocked bucket without tokens, last_refill and blocked_limit is full. The
-- fields of a block are read only if limit differs from the charge's. So blocks cost other buckets nothing.
--
-- A charge that takes nothing writes nothing, with one exception. A charge with a need, also a denied one, puts a bucket
-- that is kept under its limit, and moves a last refill or an end that is too far ahead. Looks and removals never do.
--
-- A key is broken if no script can have written the fields that a charge reads. Calls for it fail, and the key stays as it is.
--
-- KEYS  one key a charge, in the order of the charges. A key may appear in many calls, but once in each.
-- ARGV  the clock: the time in microseconds, or '' for this server's own
--       the number of terms, then seven arguments for each. A term is what a charge asks for. Charges that ask the
--       same share a term:
--         unit, refill, capacity   the limit. For a quota the period, such as "per month Europe/Berlin", the first
--                  microsecond of the period and its end, with a space between, and the tokens. For slots "at once";
--                  "<holder> <sequence> <held> <mode> <lease> <waited>"; and how many there are
--         need     credits to take; 0 to look, below 0 to give back; -2^54 to remove the bucket and its block
--         debt     how many credits below zero the charge may go. -1 if the charge is owed: it is always made, to a
--                  debt of at most 2^52. -2 if the charge settles: it takes at most what the bucket holds
--         shadow   1 if it denies no call, else 0
--         lock     for how many microseconds it locks the bucket if it leaves less than a token, or 0
--       The slots of a holder end a lease after its last charge that was no look. It has waited so many microseconds for a
--       slot, or does not wait if that is -1. It holds that many slots, which the mode is about:
--         fresh    Redis confirmed them less than a lease ago. So they are restored if Redis has forgotten them
--         late     they are restored if so many are free, else lost
--         keep     as fresh; but an earlier charge may still arrive. So the field stays, with its sequence number
--         same     an earlier call of this script has said how many there are
--         look     nothing is said or written. A removal, which is such a charge, ends a block only
--       then the runs. A run is of calls that differ in their keys only. Its arguments: how many calls it has, how many
--       identical calls each of them stands for, how many charges a call has, and the number of the term of each
--       charge, from 1
-- Reply two integers a charge: how many of the identical calls charged it, and the bucket's credits after them.
--       Only the time, if a term has a quota whose period the time is not in. Then nothing was charged.
--       If the key of a shadow is broken, that charge has -1 and 0. If another key is, all charges of the call have. If
--       the script has only that call, the reply is the error.
--       After all charges, two integers for each blocked bucket: the number of its charge, from 1, and for how many
--       microseconds it is blocked. And two for each quota: the number of its charge below zero, and how many
--       microseconds are left of its period. And two for slots: that number, and 1 if the holder has lost those that it
--       held, or 2 if its sequence number was not above the last. Then the charge is refused, and nothing is written for it.
--
-- Most of this runs for each of many keys. So it reads and writes no field without need, uses local variables, and
-- formats integers itself, because Redis does that more slowly. Dragonfly and Garnet run Lua 5.4, whose integers wrap
-- at 2^63. So products beyond that are made of doubles.

local unit, refill, capacity, need, debt, shadow, lock, limit, fill -- the term in use; fill is the time to full, or of a period
local period_ends -- of a quota: when the period ends that the time is in; else nil
local blocked_until, is_lock -- of the bucket that was read last: until when it is blocked, or nil, and whether by a lock
local KEYS, ARGV = KEYS, ARGV
local across = KEYS == ARGV -- see take_across.lua
local at = across and table.remove(ARGV) + 1 or 1 -- where we are in ARGV
local call, ceil, floor, format = redis.call, math.ceil, math.floor, string.format
local min, max, match = math.min, math.max, string.match

local server_clock, now, earliest = ARGV[at] == '', ARGV[at], 0 -- earliest is the first time of a bucket that is not broken
if server_clock then
  local time = call('TIME') -- seconds, and microseconds within the second
  now = time[1] * 1000000 + time[2]
else
  now, earliest = now + 0, -72057594037927936 -- a caller's clock may be that of a test, in the year 1
end
local now_text = format('%d', now)
local reply, ends = { 0, 0 }, 2 * (across and at - 1 or #KEYS) -- and the length of the reply, with room for all charges

local has_slots, terms = false, { false } -- tables begin with room for what most scripts need: to grow takes time
at = at + 2
for i = 1, ARGV[at - 1] + 0 do
  local unit, refill, capacity = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  local need, debt, shadow, lock = ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] == '1', ARGV[at + 6] + 0
  if unit then
    local text = ARGV[at] .. ' ' .. refill .. ' ' .. capacity
    terms[i] = { unit, refill + 0, capacity + 0, need, debt, shadow, lock, text, ceil(capacity / refill) }
  elseif ARGV[at] == 'at once' then
    has_slots = true
    local holder, sequence, held, mode, lease, waited = match(refill, '^(%S+) (%d+) (%d+) (%l+) (%d+) (%S+)$')
    terms[i] = { 1, 0, capacity + 0, need, debt, shadow, lock, capacity .. ' at once', lease + 0, nil, {
      held_by = 'held_by:' .. holder, waits = 'waits:' .. holder, sequence = sequence + 0, held = held + 0, mode = mode,
      waits_on = waited + 0 >= 0, since = now - max(waited + 0, 0) } }
  else
    local from, till = match(refill, '^(%S+) (%S+)$')
    terms[i] = { 1, 0, capacity + 0, need, debt, shadow, lock, capacity .. ' ' .. ARGV[at], till - from, till + 0 }
    if now < from + 0 or now >= till + 0 then
      return { now }
    end
  end
  at = at + 7
end

local function use(number)
  local term = terms[number + 0]
  unit, refill, capacity, need, debt = term[1], term[2], term[3], term[4], term[5]
  shadow, lock, limit, fill, period_ends = term[6], term[7], term[8], term[9], term[10]
end

local function integer(text, least, most)
  local number = tonumber(text)
  if not (number and number % 1 == 0 and number >= least and number <= most) then -- put so that nan fails
    error('broken', 0)
  end
  return number
end

-- Returns the limit of a blocked bucket, nil if it was never charged.
local function beneath(key, own)
  local block = call('HMGET', key, 'blocked_limit', 'blocked_until')
  local ends = integer(block[2], -72057594037927936, 9007199254740992)
  if ends > now then
    blocked_until, is_lock = ends, own == 'locked'
  end
  return block[1]
end

-- Is for a bucket whose field limit differs from the charge's. Returns its tokens, in credits of the charge's limit, or nil
-- if it is full. Also returns the state of the key, as read does.
local function convert(key, tokens, own)
  if own == 'blocked' or own == 'locked' then
    own = beneath(key, own)
    if own == limit or not own and not tokens then
      return tokens, 'old'
    end
  end
  if match(own or '', '^%d+ per ') or match(own or '', '^%d+ at once$') then
    return nil, 'other'
  end
  local from = integer(tokens and match(own or '', '^(%d+) %d+ %d+$'), 1, 4503599627370496)
  -- tokens * unit / from, rounded down
  local whole, to = floor(tokens / from), unit + 0.0
  local part, result = tokens - whole * from, 0
  if part * to < 9007199254740992 then
    result = floor(part * to / from)
  else
    -- The product does not fit a double: multiply and divide together, a bit of `to` at a time. The remainder is kept
    -- less `from`, so that it fits when it is doubled.
    local rest, bit = -from, 4503599627370496
    while bit >= 1 do
      rest = 2 * rest + from + (to % (2 * bit) >= bit and part or 0)
      local more = floor(rest / from) + 1 -- 0, 1 or 2
      result, rest, bit = 2 * result + more, rest - more * from, bit / 2
    end
  end
  return floor(max(min(whole * to + result, capacity), -4503599627370496)), 'moved'
end

-- Reads the bucket of a quota. Returns what read does, but the end of the period in place of the time of the refill.
local function read_quota(key)
  local hash = call('HMGET', key, 'used', 'until', 'limit')
  local used, ends, own, state = hash[1], hash[2], hash[3], 'lasting'
  if own == 'blocked' or own == 'locked' then
    own, state = beneath(key, own), 'old'
  end
  if not own and not used and not ends then
    return capacity, period_ends, hash[3] and 'old' or 'absent'
  elseif match(own or '', '^%d+ %d+ %d+$') or match(own or '', '^%d+ at once$') then
    return capacity, period_ends, 'other'
  end
  local kind = match(own or '', '^%d+ per (%l+) ') or error('broken', 0)
  used, ends = integer(used, 0, 9007199254740992), integer(ends, -72057594037927936, 9007199254740992)
  state = own ~= limit and 'moved' or ends <= now and 'old' or state
  if ends <= now then
    return capacity, period_ends, state
  elseif state == 'moved' and kind ~= match(limit, '^%d+ per (%l+) ') then
    ends = min(ends, period_ends)
  elseif server_clock and ends - now > 2 * fill then -- see the end of read
    ends, state = min(ends, period_ends), 'moved'
  end
  return max(capacity - used, -4503599627370496), ends, state
end

-- Reads a bucket. Returns the credits that it holds now; the time of its refill, which is now, or later if the clock was
-- set back; and the state of its key:
--   absent   there is no key
--   lasting  a charge need write neither the TTL nor the limit
--   old      a charge must write both
--   moved    both must be written even if the bucket is not charged
--   other    as moved; the bucket had a limit of another kind
-- The first charge in each period of the time to full sets the TTL to twice that time. So it lasts for all charges of the
-- period.
local function read(key)
  blocked_until = nil
  if period_ends then
    return read_quota(key)
  end
  local hash = call('HMGET', key, 'tokens', 'last_refill', 'limit')
  local tokens, last, own, state = hash[1], hash[2], hash[3], 'lasting'
  if tokens and last then
    tokens, last = tokens + 0, last + 0
    if not (tokens % 1 == 0 and tokens <= 4503599627370496 and tokens >= -4503599627370496 and
        last % 1 == 0 and last <= 9007199254740992 and last >= earliest) then -- put so that nan fails
      error('broken', 0)
    end
  elseif tokens or last then
    error('broken', 0)
  elseif not own then
    return capacity, now, 'absent'
  end
  if own ~= limit or not tokens then
    tokens, state = convert(key, tokens, own)
    if not tokens then
      return capacity, now, state
    end
  end
  local passed = now - last
  if passed >= 0 then
    if state == 'lasting' and (passed > now % fill or not server_clock) then -- TTLs do not run by a caller's clock
      state = 'old'
    end
    -- This compares times, because the product may be too large.
    return passed >= (capacity - tokens) / refill and capacity or tokens + passed * refill, now, state
  elseif server_clock and -passed > fill then
    -- A clock that goes back neither grants nor drains. But a last refill further ahead than the time to full means that
    -- the clock was set back, for example by a failover. The bucket would not refill until that time.
    return tokens, now, 'moved'
  end
  return tokens, last, state
end

-- Returns how many of count charges a bucket can pay.
local function pays(tokens, count)
  if need <= 0 or debt < 0 then
    return count
  elseif blocked_until or need > capacity or tokens + debt < need then
    return 0
  end
  return count == 1 and 1 or min(count, floor((tokens + debt) / need))
end

-- Writes what a bucket holds. If change is set, its lock begins or ends.
local function write(key, left, last, state, change)
  if state == 'lasting' and left >= 0 and last == now and not change then -- no quota, whose last is the end of its period
    call('HSET', key, 'tokens', format('%d', left), 'last_refill', now_text)
    return
  end
  local amount, time, lasts = 'tokens', 'last_refill', last - now
  if period_ends then
    amount, time, left = 'used', 'until', capacity - left
    lasts = lasts + 1000000 + now % 1000000 * 60 -- keys that expire all at once hold up other clients
  else
    lasts = lasts + fill + max(fill, (capacity - left) / refill)
  end
  local rest = state == 'absent' and -1 or call('PTTL', key)
  call('HSET', key, amount, format('%d', left), time, format('%d', last), blocked_until and 'blocked_limit' or 'limit', limit)
  if change and blocked_until then
    lasts = max(lasts, lock)
    call('HSET', key, 'limit', 'locked', 'blocked_until', format('%d', blocked_until),
      'blocked_since', now_text, 'blocked_reason', '')
  elseif change then
    call('HSET', key, 'blocked_until', now_text)
  end
  local ttl = ceil(lasts / 1000) + 1
  if rest < ttl then -- without a TTL it is -1
    call('PEXPIRE', key, format('%d', ttl))
  end
end

-- Charges the bucket of charge i that many times, and returns the credits that are left.
local function charge(i, key, tokens, last, state, times)
  if state == 'other' then -- from one kind to another: what was charged before must not make it full once more
    local before = debt < 0 or need < 0 and need ~= -18014398509481984
    times, state = before and 0 or times, before and 'old' or 'moved'
  end
  local change, left = nil, times == 0 and tokens or times == 1 and tokens - need or tokens - floor(times * (need + 0.0))
  if left > capacity then
    left = capacity
    if need == -18014398509481984 then
      call('PEXPIRE', key, 0) -- DEL would take one more right
      tokens, last, blocked_until = left, period_ends, nil
    end
  elseif debt == -2 then
    left = max(left, min(tokens, 0))
  elseif left < -4503599627370496 then
    left = -4503599627370496
  end
  if blocked_until then
    if is_lock and times > 0 and need < 0 and left >= unit then
      blocked_until, change = nil, true
    end
  elseif lock > 0 and times > 0 and left < unit then
    blocked_until, change = now + lock, true
  end
  if left ~= tokens or change or state == 'moved' and need ~= 0 and need ~= -18014398509481984 then
    write(key, left, last, state, change)
  end
  if blocked_until then
    reply[ends + 1], reply[ends + 2], ends = i, blocked_until - now, ends + 2
  end
  if period_ends then
    reply[ends + 1], reply[ends + 2], ends = -i, last - now, ends + 2
  end
  return left
end

-- Functions for slots take the places of those above where a script has slots. Others do not take the time to make them.
if has_slots then
  local use_bucket, read_bucket, pays_bucket, charge_bucket = use, read, pays, charge
  local slots, conflict -- the holder of the term in use and what it says; whether its sequence number was too low

  function use(number)
    use_bucket(number)
    slots, conflict = terms[number + 0][11], false
  end

  -- Reads the slots of a key. Returns how many are free for the holder; in place of the time of the refill, what was found;
  -- and the state of the key.
  function read(key)
    if not slots then
      return read_bucket(key)
    end
    blocked_until, conflict = nil, false
    local all, own, others, earlier, last = call('HGETALL', key), nil, 0, 0, nil
    for i = 1, #all, 2 do
      own = all[i] == 'limit' and all[i + 1] or own
    end
    local state = own and 'old' or all[1] and error('broken', 0) or 'absent'
    if own == 'blocked' or own == 'locked' then
      own = beneath(key, own)
    end
    if own and not match(own, '^%d+ at once$') then
      state = (match(own, '^%d+ %d+ %d+$') or match(own, '^%d+ per ')) and 'other' or error('broken', 0)
    end
    local set, gone = {}, {} -- fields and values to write, and fields to remove
    local found = { set = set, gone = gone, fields = 0 }
    for i = 1, #all, 2 do
      local field, holds = all[i], match(all[i], '^held_by:')
      if holds or match(field, '^waits:') then
        local first, ends, sequence = match(all[i + 1], holds and '^(%d+) (%-?%d+) (%d+)$' or '^(%-?%d+) (%-?%d+)$')
        first = integer(first, -72057594037927936, 9007199254740992)
        ends = integer(ends, -72057594037927936, 9007199254740992)
        sequence = holds and integer(sequence, 0, 9007199254740992)
        local ended = ends <= now or state == 'other' or not holds and ends > now + 250000 -- from before the clock was set back
        found.fields = found.fields + 1
        if field == slots.held_by then
          found.own, found.count, last = field, not ended and first, sequence
        elseif field == slots.waits then
          found.waits = field
        elseif ended then
          gone[#gone + 1] = field
        elseif not holds then
          earlier = first < slots.since and earlier + 1 or earlier
        else
          others = others + first
          if ends > now + fill and slots.mode ~= 'look' then
            set[#set + 1], set[#set + 2] = field, format('%d %d %d', first, now + fill, sequence)
          end
        end
      end
    end
    local held, mode = slots.held, slots.mode
    if mode == 'look' or mode == 'same' then
      held, conflict = found.count or 0, mode == 'same' and found.count and last ~= slots.sequence
    elseif last and last >= slots.sequence then
      held, conflict = found.count or 0, true
    elseif mode == 'late' and held > 0 and not found.count and others + held > capacity then
      held, found.lost = 0, true
    end
    found.held, found.conflict = held, conflict
    return capacity - others - held - earlier, found, state
  end

  function pays(free, count)
    return conflict and 0 or pays_bucket(free, count)
  end

  -- Carries out a charge of slots. Its arguments and result are those of charge, with found in place of the time.
  function charge(i, key, free, found, state, times)
    if not slots then
      return charge_bucket(i, key, free, found, state, times)
    end
    local set, gone, held, mode, removal = found.set, found.gone, found.held, slots.mode, need == -18014398509481984
    if removal and times > 0 and blocked_until then
      blocked_until = nil
      if #gone < found.fields then
        set[#set + 1], set[#set + 2] = 'blocked_until', now_text
      end
    elseif blocked_until then
      reply[ends + 1], reply[ends + 2], ends = i, blocked_until - now, ends + 2
    end
    if found.conflict or found.lost then
      reply[ends + 1], reply[ends + 2], ends = -i, found.conflict and 2 or 1, ends + 2
    end
    if found.conflict or need == 0 and (mode == 'look' or state == 'other') or removal and times == 0 then
      return free
    elseif need > 0 and times > 0 then
      held, free, gone[#gone + 1] = held + times * need, free - times * need, found.waits
    elseif need > 0 and slots.waits_on and (blocked_until or free < need) then
      set[#set + 1], set[#set + 2] = slots.waits, format('%d %d', slots.since, now + 250000)
    end
    if mode ~= 'look' and (held > 0 or mode == 'keep' or mode == 'same' and found.count) then
      set[#set + 1], set[#set + 2] = slots.held_by, format('%d %d %d', held, now + fill, slots.sequence)
    elseif mode ~= 'look' and (need == 0 or found.count) then
      gone[#gone + 1] = found.own
    elseif need > 0 and not set[1] then -- denied
      return free
    end
    if not set[1] and #gone == found.fields and not blocked_until then
      call('PEXPIRE', key, 0)
      return free
    end
    if set[1] then
      local ttl, rest = ceil(fill / 500) + 2, state == 'absent' and -1 or call('PTTL', key) -- twice the lease
      call('HSET', key, blocked_until and 'blocked_limit' or 'limit', limit, set[1], set[2])
      for j = 3, #set, 2 do
        call('HSET', key, set[j], set[j + 1])
      end
      if rest < ttl / 2 then
        call('PEXPIRE', key, format('%d', ttl))
      end
    end
    for j = 1, #gone do
      call('HDEL', key, gone[j])
    end
    return free
  end
end

local done, calls = 0, 0 -- charges of earlier calls, and calls of this run that are still to come
local reading -- the number of the charge whose bucket is read
local bad -- which charges have broken keys, if there are any

-- Takes a call of several charges.
local function take_call(count, charges, found)
  local granted = count -- how many of the identical calls every charge can pay
  for i = 1, charges do
    use(ARGV[at + 2 + i])
    local fits = -1
    if not (bad and bad[done + i]) then
      reading = done + i
      local tokens, last, state = read(KEYS[reading])
      reading = nil
      fits = pays(tokens, count)
      found[i] = { tokens, last, state, fits, blocked_until, is_lock }
    elseif across then
      granted = -1
    end
    if fits < granted and not shadow then
      granted = fits
    end
  end
  if across and granted >= 0 then
    -- While a slot moves, Redis since 7.4 looks for a key in the slot of the last command. So it may refuse to write
    -- the first key, which it has read. This reads that key again while nothing is written.
    reading = done + 1
    call('HMGET', KEYS[reading], 'tokens')
    reading = nil
  end
  for i = 1, charges do
    local times, left = -1, 0
    if granted >= 0 and not (bad and bad[done + i]) then
      local of = found[i]
      use(ARGV[at + 2 + i])
      blocked_until, is_lock = of[5], of[6]
      times = min(of[4], granted)
      left = charge(done + i, KEYS[done + i], of[1], of[2], of[3], times)
    end
    reply[2 * (done + i) - 1], reply[2 * (done + i)] = times, left
  end
  done, calls = done + charges, calls - 1
end

local function run()
  while ARGV[at] do
    local count, charges = ARGV[at + 1] + 0, ARGV[at + 2] + 0
    calls = calls > 0 and calls or ARGV[at] + 0
    if charges > 1 then
      local found = {}
      while calls > 0 do
        take_call(count, charges, found)
      end
    else
      use(ARGV[at + 3])
    end
    for i = done + 1, done + calls do -- the calls of a run of one charge each
      local times, left = -1, 0
      if not (bad and bad[i]) then
        local key = KEYS[i]
        reading = i
        local tokens, last, state = read(key)
        reading = nil
        times = pays(tokens, count)
        left = charge(i, key, tokens, last, state, times)
      end
      reply[2 * i - 1], reply[2 * i] = times, left
      done, calls = i, calls - 1
    end
    at = at + 3 + charges
  end
end

-- A call reads its buckets before it writes any. If a bucket cannot be read, the call begins again, and leaves out the
-- broken key. The calls before and after it are not disturbed.
while true do
  local ok, err = pcall(run)
  if ok then
    return reply
  end
  if not reading or not shadow and #KEYS == ARGV[at + 2] + 0 then -- the only call, whose error is that of the script
    local key = reading and KEYS[reading]
    if key and not (has_slots and redis.pcall('HGETALL', key) or redis.pcall('HMGET', key, 'tokens')).err then
      return redis.error_reply('ERR the key holds no bucket')
    end
    -- Before Redis 7 and on KeyDB, some errors begin with the line that called: '@user_script: 183: -OOM command …'.
    -- Clients know errors by their first word.
    local text = type(err) == 'table' and err.err or err
    return redis.error_reply(match(text, '^@user_script: %d+: %-?(.-)%s*$') or text)
  end
  bad = bad or {}
  bad[reading] = true
end
