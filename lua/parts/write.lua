-- Writes the bucket of key, which held tokens before its charge and has left credits after it, more than nothing
-- if it was charged. spare is the new field of that name, for which no bucket is lasting, or nil. shut is for how long it
-- is blocked, and holds until when it is held, see read.lua, or nil. written is what Redis answers.
local written = 0
if left > capacity then
  left = capacity
elseif left < -4503599627370496 then
  left = -4503599627370496
end
if left == tokens and not spare and (lasting ~= nil or left == capacity) then -- what changes nothing writes nothing
  if lasting and lasting ~= true and lasting ~= '' then
    written = call('HSET', key, 'last_refill', now_text, 'limit', lasting)
  end
else
  -- Redis prints the numbers it is given as %.17g, which takes longer than to print integers. A server of 32 bits
  -- cannot print integers of more.
  local left_text = format('%d', left)
  if #left_text < 12 and (left > 2147483647 or left < -2147483648) then
    left_text = format('%.0f', left)
  end
  if lasting == true and left >= 0 and last == now then
    written = call('HSET', key, 'tokens', left_text, 'last_refill', now_text)
  else
    -- A debt takes longer than the time to full. It counts from the last refill, which is ahead of a clock that
    -- was set back a little. A caller's clock is not the one that TTLs run by, so under it nothing lasts.
    local missing = math.ceil((capacity - left) / refill)
    local ttl = fill + (missing > fill and missing or fill)
    if server_clock then
      ttl = last + ttl - now
    end
    local limit, hold = limit, holds and holds[key]
    if hold and hold > now then
      limit = '+' .. format('%.0f', hold) .. ' ' .. limit
      if ttl < hold - now then
        ttl = hold - now
      end
    end
    if shut then
      limit = shut[4] .. limit
      if ttl < shut[1] then
        ttl = shut[1]
      end
    end
    local last_text = last == now and now_text or format('%.0f', last)
    if lasting == true or lasting == false then
      written = call('HSET', key, 'tokens', left_text, 'last_refill', last_text)
    else
      written = call('HSET', key, 'tokens', left_text, 'last_refill', last_text, 'limit', limit, 'unit', unit)
    end
    if type(written) == 'number' then
      local expiry = math.ceil(ttl / 1000) + 1
      if expiry < 2147483648 then
        expiry = format('%d', expiry)
      end
      written = call('PEXPIRE', key, expiry)
    end
    if spare then
      call('HSET', key, 'spare', spare)
    end
  end
end
