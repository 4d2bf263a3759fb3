-- Reads the bucket of key, and refills it: tokens are what it holds now, last is when that was, and lasting reports
-- whether its TTL will do after a charge. Instead of a boolean that is nil for a bucket which must be written even if
-- it is not charged, unless it is full, and the limit of the bucket, as text, if only the last refill must be written
-- then.
--
-- A TTL is set to twice the time to full, by the first charge in each period of that length. So it holds for
-- all charges of the period, and no charge has to ask for it.
local hash = call('HMGET', key, 'tokens', 'last_refill', 'limit')
tokens, last, lasting = hash[1], hash[2], server_clock
if tokens then
  tokens, last = tokens + 0, last + 0
  if not (tokens % 1 == 0 and tokens <= 4503599627370496 and tokens >= -4503599627370496
    and last % 1 == 0 and last <= 9007199254740992 and last >= earliest) then -- put so that nan fails
    error('broken')
  end
  if hash[3] ~= limit then
    local from, to = call('HMGET', key, 'unit')[1], unit
    if from ~= to then
      from, to = from + 0, to + 0
      if not (from >= 1 and from <= 4503599627370496 and from % 1 == 0) then
        error('broken')
      end
      --: rescale
    end
    lasting = nil
    if looks then
      lasting = false
    end
  end
  if tokens > capacity then
    tokens = capacity
  end
  if last < now then
    local passed = now - last
    lasting = lasting and passed <= now % fill
    -- Compared so, the product cannot overflow.
    if passed >= (capacity - tokens) / refill then
      tokens = capacity
    else
      tokens = tokens + passed * refill
    end
    last = now
  elseif server_clock and last - now > fill then
    -- Time that runs backwards neither grants nor drains. But a last refill further ahead than the time to
    -- full means that the clock was set back, as after a failover: without this the bucket would be frozen
    -- until then. Only our own clock can tell. The TTL is that of another clock.
    last, lasting = now, nil
    if tokens == capacity or looks then
      lasting = string.gsub(hash[3] or '', '~', '')
    end
  end
else
  if last or hash[3] then
    error('broken')
  end
  tokens, last, lasting = capacity, now, false
end
