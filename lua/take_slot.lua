-- Takes slots, or says how many are held, for a lone call. It is take_one.lua for concurrency limits. take.lua describes them.
--
-- KEYS  the key
-- ARGV  how many slots there are; "<holder> <sequence> <held> <mode> <lease> <waited>"; and how many to take, or 0
-- Reply as of take_one.lua. Nil also if the mode is neither fresh nor keep, if a field has ended, a call waits, or slots were
--       forgotten, and if a holder is refused that has a field, keeps one or waits.

local ARGV, key, call, format, match = ARGV, KEYS[1], redis.pcall, string.format, string.match
local holder, sequence, held, mode, lease, waited = match(ARGV[2], '^(%S+) (%d+) (%d+) (%l+) (%d+) (%S+)$')
local limit, need, free, keeps = ARGV[1] .. ' at once', ARGV[3] + 0, ARGV[1] - held, mode == 'keep'
local time, all = call('TIME'), call('HGETALL', key)
if time.err or all.err or mode ~= 'fresh' and not keeps then
  return false
end
local now, known, fields, own = time[1] * 1000000 + time[2], not all[1], 0, nil
holder, held = 'held_by:' .. holder, held + 0
for i = 1, #all, 2 do
  local field, count, ends, last = all[i], match(all[i + 1], '^(%d+) (%d+) (%d+)$')
  if field == 'limit' and all[i + 1] == limit then
    known = true
  elseif not count or string.sub(field, 1, 8) ~= 'held_by:' or #count > 7 or ends - now <= 0 or ends - now > lease + 0 or
      last + 0 > 9007199254740992 or field == holder and last - sequence >= 0 then
    return false
  else
    fields, own = fields + 1, own or field == holder
    free = field == holder and free or free - count
  end
end
if not known or held > 0 and not own then
  return false
elseif need > 0 and need > free then
  return not own and not keeps and waited == '-1' and 2 * free
end
held, free = held + need, free - need
if held == 0 and not keeps then -- a release
  local done = fields == (own and 1 or 0) and call('PEXPIRE', key, 0) or own and call('HDEL', key, holder) or 0
  return type(done) == 'number' and 2 * free + 1
end

local ttl, rest = 2 * math.ceil(lease / 1000) + 2, all[1] and call('PTTL', key) or -1
local done = type(rest) == 'number' and
  call('HSET', key, 'limit', limit, holder, format('%d %d ', held, now + lease) .. sequence)
if type(done) ~= 'number' then
  return false
end
local set = rest < ttl / 2 and call('PEXPIRE', key, format('%d', ttl)) or 0 -- no charge makes a TTL shorter
return type(set) == 'number' and 2 * free + 1 or set
