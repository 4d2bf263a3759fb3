-- Reads what has changed in a set of values, or writes one. A hash has each value as '<version> <end> <text>'. Its version is
-- higher than all before, of which the field '' has the last. Its end is in microseconds, or 0. One sorted set has the
-- versions, another the ends, inf for 0. Each call removes up to 100 values whose end has come.
--
-- KEYS  the hash, the versions and the ends
-- ARGV  the clock: the time in microseconds, or '' for this server's own; a name, and the version that it should have; then
--       to read, the version to begin after; to write, the end and the text. To write, the version is 0 for none, -1 for any
-- Reply to read, the time; 1 if it begins anew, because the name is gone or older, else 0; the version to go on after, or '';
--       names, versions and values. To write, the time; 1 and the new version, or 0 and the other value, or ''

local function run() -- which errors.lua calls
  local call, hash, versions, ends = redis.call, KEYS[1], KEYS[2], KEYS[3]
  local now, name, wanted, after, text = ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4], ARGV[5]
  local time = now == '' and call('TIME') -- seconds, and microseconds within the second
  now = time and string.format('%.0f', time[1] * 1000000 + time[2]) or now
  for _, ended in ipairs(call('ZRANGE', ends, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)) do
    call('HDEL', hash, ended)
    call('ZREM', versions, ended)
    call('ZREM', ends, ended)
  end
  local kept, latest = call('HMGET', hash, name, ''), now + 315360000000000 -- in ten years: a later one would stay above all
  local held, last = kept[1] or '', (string.match(kept[2] or '', '^%d+') or 0) + 0
  local version, ending = string.match(held, '^(%d+) (%d+) ')
  if not version or #held > 8226 or version + 0 > latest or ending + 0 > 9007199254740991 or ending + 0 > 0 and ending - now <= 0
    or call('ZRANGE', versions, version, version, 'BYSCORE')[1] ~= name then -- none, written by hand, or its version was evicted
    held, version = '', 0
  end
  if not text then
    local anew = version + 0 < wanted
    local page = call('ZRANGE', versions, '(' .. (anew and 0 or after), 'inf', 'BYSCORE', 'LIMIT', 0, 500, 'WITHSCORES')
    local reply = { now, anew and 1 or 0, page[1000] or '' }
    for i = 1, #page, 2 do
      held = call('HMGET', hash, page[i])[1] or ''
      if #page[i] <= 512 and #held <= 8226 then -- not written by hand
        reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = page[i], page[i + 1], held
      end
    end
    return reply
  elseif wanted >= 0 and wanted ~= version + 0 then
    return { now, 0, held }
  end
  version = string.format('%.0f', math.max(now + 0, version + 1, last <= latest and last + 1 or 0))
  call('ZADD', versions, version, name)
  call('ZADD', ends, after == '0' and 'inf' or after, name)
  call('HSET', hash, name, version .. ' ' .. after .. ' ' .. text, '', version)
  local rest = (tonumber(call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]) or math.huge) - now
  for _, key in ipairs(KEYS) do
    if rest == math.huge then
      call('PERSIST', key)
    else
      call('PEXPIRE', key, string.format('%.0f', rest / 1000 + 60000))
    end
  end
  return { now, 1, version }
end
