-- Takes tokens from token buckets: many calls in one script, each of which is charged whole or not at all.
--
-- Redis runs a script to its end before it does anything else, so nothing here can be interleaved. Lua's
-- numbers are doubles, exact for integers up to 2^53; the Go side (internal/bucket, which holds the same
-- arithmetic and the reasons for it) only makes limits whose every value stays within that.
--
-- A bucket is one hash:
--   tokens       what it holds, in credits; below zero while tokens are reserved, or owed, that are still to come
--   unit         how many credits one token is worth, so that tokens/unit is the number of tokens
--   last_refill  when it was last charged, in microseconds of Unix time
--   limit        the limit that it was charged under when its TTL was last set: unit, refill and capacity; after
--                a + and a time and a blank if it is held until that time; before these, a ~ where the TTL will not do
--                for the next charge; and if it is blocked, instead of that a mark: '!' or, if a charge has locked it,
--                '?', then until when in microseconds of Unix time, and for how many microseconds it was blocked, each
--                with a blank behind it
--   spare        after a charge for what was used without the bucket's knowledge: for how many microseconds it had
--                been full, how many of these have paid for that, and when it was; see Settle in internal/bucket
-- A bucket that is not there is full. So a key may expire once its bucket has had the time to refill.
--
-- A charge that takes nothing, because its call is refused, writes nothing. The exception is a bucket whose limit is
-- not the charge's: unless it is full, it is written under the new limit. Otherwise its TTL would be that of the old
-- limit, and the bucket full again when it ends. A look and a removal never put a bucket under their limit.
--
-- A bucket that is put under another limit is held until it would have been full under the old one. Its TTL does not end
-- before, and each charge finds a field limit that is not its own. The hold stays though the TTL is longer: a third limit
-- may make that shorter. The first charge after its end drops it.
--
-- The mark of a block is in a field that each charge compares anyway. So a bucket that is not blocked costs nothing
-- more. A mark that has ended makes the field differ from the limit of the charge, and the next charge that takes something
-- drops it.
--
-- A key is broken if it holds what this script cannot have written: another type, tokens without a time, or a
-- number that is no integer or out of range. Its calls fail, and it is not written, nor given a TTL. The unit is
-- looked at only where the limit has changed, since a field more to read costs a batch 15 %; until then a unit that
-- is wrong is not noticed.
--
-- KEYS  one key a charge, in the order of the charges. A key may appear in many calls, but once in each.
-- ARGV  the clock: the time in microseconds, or '' for this server's own
--       the number of terms, then six arguments for each: what a charge asks for, listed once for all the
--       charges that ask the same
--         unit, refill, capacity   the limit: credits a token, credits a microsecond, credits when full
--         need                     credits to take; 0 to look, below 0 to give back; -2^54 to remove the bucket,
--                                  which is full then, under whatever limit it is charged next; 0 that is owed to
--                                  look, and to put the bucket under the limit
--         debt                     how many credits below zero the charge may go, to wait for them; -1 for a
--                                  charge that is owed: it is made whatever the bucket holds, and whatever
--                                  that can hold, though no debt is deeper than 2^52 credits; -2 for one
--                                  that is owed, and -3 for one that is not and may not wait, which have
--                                  three arguments more, behind shadow
--         shadow                   1 if it vetoes nothing, else 0
--         refilled, outage         with a debt of -2: credits that were used as well within the last outage
--                                  microseconds, but for what the bucket could not refill then; with -3: 0
--         block                    0; or with a need of 0 and a debt of -3, for how many microseconds to block
--                                  the bucket, below 0 to end a block; or with a need above 0, for how many to
--                                  lock it if the charge leaves less than one token
--       then for each run of calls that differ in their keys only: how many they are, how many identical
--       calls each stands for, how many charges it has, and for each charge the number of its term, from 1
-- Reply two integers a charge: how many of the identical calls charged it, and the bucket's credits after
--       them. The Go side works out the rest (remaining, retry after) from these. A charge whose key is
--       broken is answered with -1, and so are the others of its call if it could have vetoed them; a
--       script of one call fails by the error instead. Behind all charges, two integers for each whose bucket is
--       blocked after it: the number of the charge, from 1, and for how many microseconds.
--
-- Most of this is run for each of many keys. So it reads and writes no field without need, keeps to local
-- variables, because tables are slow to make, and makes numbers of strings by adding 0, which takes a third
-- of the time that tonumber does.
--
-- Dragonfly and Garnet run Lua 5.4, where such numbers are integers of 64 bits, and products of them wrap. So a product
-- that can be beyond 2^63 is made of doubles, as in Lua 5.1, and floor makes an integer of what is kept of it: a
-- double in the reply would be sent as text.

local call, ceil, floor, format = redis.call, math.ceil, math.floor, string.format
local min, max, match = math.min, math.max, string.match
local KEYS, ARGV = KEYS, ARGV

local across = KEYS == ARGV -- see take_across.lua
local at = 1 -- where we are in ARGV
if across then
  at = table.remove(ARGV) + 1
end

-- Redis prints the numbers it is given as %.17g, which takes longer than to print integers. A server of 32 bits
-- cannot print integers of 53, and does without.
local integer = format('%d', 4503599627370497) == '4503599627370497' and '%d' or '%.0f'

local function failure(err)
  --: failure
end

local server_clock = ARGV[at] == ''
local now
if server_clock then
  local time = redis.pcall('TIME') -- seconds, and microseconds within the second
  if time.err then
    return failure(time)
  end
  now = time[1] * 1000000 + time[2]
else
  now = ARGV[at] + 0
end
local now_text = format(integer, now)

local terms = { false } -- tables begin with room for what most scripts need: to grow takes time
at = at + 2
for i = 1, ARGV[at - 1] + 0 do
  local unit, refill, capacity = ARGV[at], ARGV[at + 1] + 0, ARGV[at + 2] + 0
  terms[i] = {
    unit, refill, capacity, ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] == '1',
    unit .. ' ' .. ARGV[at + 1] .. ' ' .. ARGV[at + 2], ceil(capacity / refill),
  }
  if terms[i][5] < -1 then
    terms[i][5] = terms[i][5] == -3 and 0 or -1
    terms[i][9] = { ARGV[at + 6] + 0, ARGV[at + 7] + 0, ARGV[at + 8] + 0 }
    at = at + 3
  end
  at = at + 6
end

-- The term of the charge that is looked at: unit and limit as text, fill is the time to full, extra is a list of refilled,
-- outage and block if it has these. shut is the block of the bucket that is looked at, see read.lua.
local term, unit, refill, capacity, need, debt, shadow, limit, fill, extra, shut
local holds -- by key, of the buckets that have one, see read.lua

local function use(number)
  term = terms[number + 0]
  unit, refill, capacity, need = term[1], term[2], term[3], term[4]
  debt, shadow, limit, fill, extra = term[5], term[6], term[7], term[8], term[9]
end

local function read(key)
  local hash = call('HMGET', key, 'tokens', 'last_refill', 'limit')
  --: read
  return tokens, last, lasting
end

-- Returns how many charges of the identical calls a bucket can pay.
local function pays(tokens, count)
  --: pay
  if shut and need > 0 and debt >= 0 then
    return 0
  end
  if times == 1 and count > 1 then
    times = count
    if need > 0 and debt >= 0 then
      times = min(count, floor((tokens + debt) / need))
    end
  end
  return times
end

-- Returns the credits that a bucket is still to be charged of those that were used without its knowledge, and its
-- new field spare, nil if that stays as it is. It is Settle of internal/bucket.
local function settle(key)
  local refilled, outage = extra[1], extra[2]
  local hash = call('HMGET', key, 'tokens', 'last_refill', 'limit', 'unit', 'spare')
  local full = outage
  if hash[1] then
    local tokens = hash[1] + 0
    if hash[3] ~= limit and hash[4] ~= unit then
      local from, to = hash[4] + 0, unit + 0
      --: rescale
    end
    full = min(now - hash[2] - ceil((capacity - min(tokens, capacity)) / refill), 2251799813685248)
  end
  local spared, paid, at = match(hash[5] or '', '^(%d+) (%d+) (-?%d+)$')
  local kept, older = 0, 0
  if spared then
    spared, paid, at = spared + 0, paid + 0, at + 0
    older = at - (now - outage)
    kept = max(0, min(spared, older) - paid)
  end
  local fresh, wanted = max(0, min(full, outage)), ceil(refilled / refill)
  local used = min(fresh + kept, wanted)
  if used < wanted then
    refilled = refilled - used * refill
  else
    refilled = 0
  end
  if used == 0 then
    return refilled, nil
  end
  if older > 0 and spared - paid > full then
    paid = paid + max(0, used - fresh)
  else
    spared, paid, at = max(0, full), max(0, used - kept), now
  end
  return refilled, format(integer, spared) .. ' ' .. format(integer, paid) .. ' ' .. format(integer, at)
end

local tail -- of the reply, if it has one

-- Takes from the bucket of charge i what is taken times over, and returns what is left.
local function charge(i, key, tokens, last, lasting, times)
  local left, spare = tokens - (times > 1 and floor(times * (need + 0.0)) or times * need), nil
  if left > capacity and need == -18014398509481984 then
    call('PEXPIRE', key, 0) -- DEL would take one more right
    shut = nil
    return capacity
  end
  if shut or extra then
    local unit, refill, capacity, limit, fill, found = unit, refill, capacity, limit, fill, nil
    local before, block = shut, extra and times > 0 and extra[3] ~= 0 and extra[3] or nil
    if extra and times > 0 and extra[1] > 0 then
      local more
      more, spare = settle(key)
      left = left - more
      if spare then
        lasting = nil
      end
    end
    if block and need == 0 then
      found = left -- which is the answer: a bucket that is there keeps its own limit
      local hash = call('HMGET', key, 'tokens', 'last_refill', 'limit')
      local own, of, speed, size = match(hash[3] or '', '((%d+) ([1-9]%d*) (%d+))$')
      if hash[1] and own then
        left, last = hash[1] + 0, hash[2] + 0
        unit, refill, capacity, limit = of, speed + 0, size + 0, own
        fill = ceil(capacity / refill)
        local hold = match(hash[3], '%+(-?%d+) ')
        if hold then
          hold = hold + 0
        end
        if server_clock and last - now > fill then -- as in read.lua
          if hold then
            hold = hold - (last - now)
          end
          last = now
        end
        if holds or hold then
          holds = holds or {}
          holds[key] = hold
        end
      elseif block < 0 and not hash[1] then
        return found
      end
      tokens, lasting, shut = false, nil, nil -- so that all is written; of tokens = nil, miniredis makes last = nil, too
    elseif times > 0 and need < 0 and shut and shut[3] and left >= unit + 0 then
      if tokens == capacity then
        call('HSET', key, 'limit', shut[5]) -- the refund changes nothing
      else
        lasting = nil
      end
      shut = nil
    elseif block and need > 0 and left < unit + 0 and not (shut and shut[1] >= block) then
      lasting = nil
    else
      block = nil
      if shut and shut[6] then
        call('HSET', key, 'limit', shut[4] .. shut[5])
      end
    end
    if block and block > 0 then
      local lock = need > 0 and (not before or before[3]) -- one that makes another block longer is none
      local till = format(integer, now + block) .. ' ' .. format(integer, block) .. ' '
      shut = { block, now + block, lock, (lock and '?' or '!') .. till }
    end
    if shut then
      tail = tail or {}
      tail[#tail + 1], tail[#tail + 2] = i, shut[1]
    end
    --: write
    shut = nil
    return found or left
  end
  --: write
  return left
end

local reply = { 0, 0 }
local done, calls = 0, 0 -- charges of earlier calls, and calls of this run that are still to come
local reading = false -- the number of the charge whose bucket is read
local broken -- charges whose keys are broken, if there are any

local function run()
  while ARGV[at] do
    local count, charges = ARGV[at + 1] + 0, ARGV[at + 2] + 0
    if calls == 0 then
      calls = ARGV[at] + 0
    end

    if charges == 1 then
      use(ARGV[at + 3])
      while calls > 0 do
        local i = done + 1
        local key = KEYS[i]
        if broken and broken[i] then
          reply[2 * i - 1], reply[2 * i] = -1, 0
        else
          reading = i
          local found, last, lasting = read(key)
          reading = false
          local times = 1
          if count > 1 or found < need or shut then
            times = pays(found, count)
          end
          reply[2 * i - 1], reply[2 * i] = times, charge(i, key, found, last, lasting, times)
        end
        done, calls = i, calls - 1
      end
    end

    -- Of the charges of a call: what read returned, and how many calls the bucket can pay.
    local tokens, lasts, lastings, fits, shuts
    if calls > 0 then
      tokens, lasts, lastings, fits = { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 }
    end
    while calls > 0 do
      local granted = count -- how many of the identical calls every charge can pay
      shuts = nil
      for i = 1, charges do
        use(ARGV[at + 2 + i])
        if broken and broken[done + i] then
          fits[i] = -1
          if across then
            granted = -1
          end
        else
          reading = done + i
          tokens[i], lasts[i], lastings[i] = read(KEYS[reading])
          reading = false
          fits[i] = pays(tokens[i], count)
          if shut then
            shuts = shuts or {}
            shuts[i], shut = shut, nil
          end
        end
        if fits[i] < granted and not shadow then
          granted = fits[i]
        end
      end
      if across and granted >= 0 then
        -- Redis since 7.4 looks in the slot of the last command for a key of a slot that is leaving. So it may refuse to
        -- write the first key, which it has read. This asks for that key while nothing is written.
        reading = done + 1
        call('HMGET', KEYS[reading], 'unit')
        reading = false
      end
      for i = 1, charges do
        local times, left = fits[i] < granted and fits[i] or granted, 0
        if times >= 0 then
          use(ARGV[at + 2 + i])
          shut = shuts and shuts[i]
          left = charge(done + i, KEYS[done + i], tokens[i], lasts[i], lastings[i], times)
        end
        reply[2 * (done + i) - 1], reply[2 * (done + i)] = times, left
      end
      done, calls = done + charges, calls - 1
    end

    at = at + 3 + charges
  end
end

-- Buckets are read before their call writes any. So a call whose bucket cannot be read is begun anew, knowing
-- that, and neither those before it nor those behind it are disturbed.
local alone = not across and ARGV[at] == '1' and not ARGV[at + 3 + ARGV[at + 2]]
while true do
  local ok, err = pcall(run)
  if ok then
    for i = 1, tail and #tail or 0 do
      reply[#reply + 1] = tail[i]
    end
    return reply
  end
  if not reading or alone and not shadow then
    if reading and not redis.pcall('HMGET', KEYS[reading], 'tokens').err then
      return redis.error_reply('ERR the key holds no bucket')
    end
    return failure(err)
  end
  broken = broken or {}
  broken[reading], shut = true, nil
end
