-- Refills the bucket of key, whose fields tokens, last_refill and limit are in hash: tokens are what it holds now, last
-- is when that was, and lasting reports whether its TTL will do after a charge. Instead of a boolean that is nil where
-- the limit must be written, too, even if the bucket is not charged, unless it is full; and the field limit, if only
-- that and the last refill must be written then, or '' if nothing must be.
--
-- If the bucket is blocked, shut is a list: for how long still, until when, whether that is a lock, the mark of the
-- field limit, what is behind it, and whether the mark must be written. A script of one call, in which shut is false, ends
-- with an error then. It has written nothing before.
--
-- If the bucket is held, or is to be held once it is under the limit of the charge, holds has the time until then by key. It
-- is nil until a bucket needs it, because holds are rare, and a value for each charge would cost all charges something.
--
-- A TTL is set to twice the time to full, by the first charge in each period of that length. So it holds for
-- all charges of the period, and no charge has to ask for it.
local tokens, last, lasting = hash[1], hash[2], server_clock
if holds then
  holds[key] = nil -- an earlier call of the script may have left it
end
if tokens then
  tokens = tokens + 0
  last = last + 0
  if not (tokens % 1 == 0 and tokens <= 4503599627370496 and tokens >= -4503599627370496 and last % 1 == 0) then
    error('the key holds no bucket', 0) -- put so that nan fails
  end
  if hash[3] ~= limit then
    lasting = nil
    local match, own = string.match, hash[3] or ''
    local kind, till, span, behind = match(own, '^([!?])(-?%d+) (%d+) (.*)$')
    if kind then
      own = behind
      local ends, long = till + 0, span + 0
      if not (ends <= 9007199254740992 and ends >= -72057594037927936 and long <= 1125899906842624) then
        error('the key holds no bucket', 0)
      end
      local moved = server_clock and ends - now > long -- the clock was set back
      if moved then
        ends = now + long
        till = string.format('%.0f', ends)
      end
      if ends > now then
        if shut == false then
          error('the bucket is blocked', 0)
        end
        shut = { ends - now, ends, kind == '?', kind .. till .. ' ' .. span .. ' ', own, moved }
      end
    end
    hash[3] = own -- with the mark of a hold, if it has one
    local doubtful, hold, held = match(own, '^(~?)%+(-?%d+) (.*)$')
    if hold then
      hold, own = hold + 0, doubtful .. held
      if not (hold <= 9007199254740992 and hold >= -72057594037927936) then
        error('the key holds no bucket', 0)
      end
    end
    if own ~= limit then
      local speed, size = match(own, '^~?%d+ ([1-9]%d*) (%d+)$')
      if speed and own ~= '~' .. limit then -- Full of internal/bucket, for the hold if the charge puts it under its limit
        local full = last + math.ceil((size - tokens) / speed)
        if not (full <= 9007199254740992) then
          full = 9007199254740992
        end
        if not hold or hold < full then
          hold = full
        end
      end
      local from, to = call('HMGET', key, 'unit')[1], unit
      if from ~= to then
        from, to = from + 0, to + 0
        if not (from >= 1 and from <= 4503599627370496 and from % 1 == 0) then
          error('the key holds no bucket', 0)
        end
        --: rescale
      end
    elseif shut then
      lasting = false -- the mark stays, and the TTL must not end before the block
    else
      lasting = ''
    end
    if hold then
      holds = holds or {}
      holds[key] = hold
    end
    if need == 0 and debt >= 0 or need == -18014398509481984 then
      lasting = false -- a look, or a removal, leaves the limit and the TTL as they are
    end
  end
  if last < now then
    local passed = now - last
    if passed <= now % fill then -- less than the time to full, so that the product cannot overflow
      tokens = tokens + passed * refill
    else
      if last < (server_clock and 0 or -72057594037927936) then -- a caller's clock may be that of a test, in the year 1
        error('the key holds no bucket', 0)
      end
      if lasting == true then
        lasting = false
      end
      if passed >= (capacity - tokens) / refill then -- nor, compared so, can it here
        tokens = capacity
      else
        tokens = tokens + passed * refill
      end
    end
    last = now
  elseif last > 9007199254740992 then
    error('the key holds no bucket', 0)
  elseif server_clock and last - now > fill then
    -- Time that runs backwards neither grants nor drains. But a last refill further ahead than the time to
    -- full means that the clock was set back, as after a failover: without this the bucket would be frozen
    -- until then. Only our own clock can tell. The TTL is that of another clock.
    if holds and holds[key] then -- a hold ends when what was missing is refilled, so it moves along with the last refill
      holds[key] = holds[key] - (last - now)
      hash[3] = string.gsub(hash[3], '%+(%-?%d+)', function(hold)
        return '+' .. format('%.0f', hold - (last - now))
      end)
    end
    last, lasting = now, nil
    if tokens >= capacity or need == 0 and debt >= 0 or need == -18014398509481984 then
      lasting = shut and shut[4] .. hash[3] or '~' .. string.gsub(hash[3] or '', '~', '')
    end
  end
  if tokens > capacity then
    tokens = capacity
  end
else
  if last or hash[3] then
    error('the key holds no bucket', 0)
  end
  tokens, last, lasting = capacity, now, nil
end
