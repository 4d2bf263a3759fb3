-- Writes the bucket of key, which held tokens before its charge and has left credits after it, more than nothing
-- if it was charged. spare is the new field of that name, or nil.
if left > capacity then
  left = capacity
elseif left < -4503599627370496 then
  left = -4503599627370496
end
if left == tokens and not spare and (lasting ~= nil or left == capacity) then -- what changes nothing writes nothing
  if lasting and lasting ~= true then
    call('HSET', key, 'last_refill', now_text, 'limit', '~' .. lasting)
  end
else
  local left_text = format(integer, left)
  local last_text = last == now and now_text or format(integer, last)
  if lasting == true and left >= 0 and not spare then
    call('HSET', key, 'tokens', left_text, 'last_refill', last_text)
  else
    -- A debt takes longer than the time to full. It counts from the last refill, which is ahead of a clock that
    -- was set back a little. A caller's clock is not the one that TTLs run by, so under it nothing lasts.
    local missing = ceil((capacity - left) / refill)
    local ttl = fill + (missing > fill and missing or fill)
    if server_clock then
      ttl = last + ttl - now
    end
    call('HSET', key, 'tokens', left_text, 'unit', unit, 'last_refill', last_text, 'limit', limit)
    call('PEXPIRE', key, ceil(ttl / 1000) + 1)
    if spare then
      call('HSET', key, 'spare', spare)
    end
  end
end
