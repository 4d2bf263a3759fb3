-- Reads the hash of changed limits, which swap_limit.lua describes, and writes nothing. The reply is bounded, whatever
-- somebody has written to the hash.
--
-- KEYS  the key of the hash
-- Reply each name and its value, one after the other. For a value of more than 1,024 bytes, its length, such as '2048
--       bytes'. Names of more than 64 bytes are left out. If there are more than 1,000 fields, only their number.

local function run() -- which errors.lua calls
  local call, key = redis.call, KEYS[1]
  local count = call('HLEN', key)
  if count > 1000 then
    return { count }
  end
  local reply, short, places = {}, {}, {}
  for _, name in ipairs(call('HKEYS', key)) do
    if #name <= 64 then
      local bytes, place = call('HSTRLEN', key, name), #reply + 2
      reply[place - 1] = name
      if bytes > 1024 then
        reply[place] = string.format('%.0f bytes', bytes)
      else
        reply[place] = '' -- until it is read, below
        short[#short + 1], places[#places + 1] = name, place
      end
    end
  end
  if #short > 0 then
    for i, value in ipairs(call('HMGET', key, (table.unpack or unpack)(short))) do
      reply[places[i]] = value
    end
  end
  return reply
end
