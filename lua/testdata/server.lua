-- Runs scripts of this package as a server would, for tests: in the interpreter that runs this file, Lua 5.4.
-- The scripts are in the files of the arguments.
--
-- A request, on standard input, is a line with a number and that many lines: one of
--   flush                         forget all keys
--   hset KEY FIELD VALUE ...
--   set KEY VALUE
--   hgetall KEY                   is answered with fields and values
--   fail COMMAND FORM TEXT        have the script's command raise TEXT: as a table, or as a string; '' ends that
--   time SECONDS MICROSECONDS     set the clock of TIME
--   commands                      is answered with the commands since it was asked last, without values
--   use N                         have run run the script of argument N, from 1, which is that of argument 1 at first
--   run N KEYS ... ARGV ...       is answered with the numbers of the reply, or with "error" and a text, or with "nil" and ""
-- The answer has the same form.

local scripts = {}
for i = 1, #arg do
  local file = assert(io.open(arg[i]))
  scripts[i] = assert(load(file:read('a'), '@user_script'))
  file:close()
end
local script = scripts[1]

local hashes, sets, strings, failing, ends = {}, {}, {}, {}, {}
local clock, log = { '1780000000', '0' }, {}

local function milliseconds()
  return math.floor(clock[1] * 1000 + clock[2] / 1000)
end

-- A score, or a bound of scores.
local function score(value)
  return ({ inf = math.huge, ['-inf'] = -math.huge })[value] or value + 0
end

-- The members of a sorted set, in the order of their scores.
local function members(key)
  local names = {}
  for name in pairs(sets[key] or {}) do
    names[#names + 1] = name
  end
  table.sort(names, function(a, b)
    return sets[key][a] < sets[key][b] or sets[key][a] == sets[key][b] and a < b
  end)
  return names
end

-- As servers print the numbers that they are given.
local function text(value)
  if math.type(value) == 'integer' then
    return string.format('%d', value)
  elseif type(value) == 'number' then
    return string.format('%.17g', value)
  end
  return value
end

local commands = {
  GET = function(key)
    return strings[key] or false
  end,
  DEL = function(key)
    hashes[key], ends[key] = nil, nil
  end,
  PEXPIRE = function(key, ttl)
    local known = hashes[key] and 1 or 0
    ends[key] = milliseconds() + ttl
    if ttl == 0 then
      hashes[key] = nil
    end
    return known
  end,
  PTTL = function(key)
    return hashes[key] and (ends[key] and ends[key] - milliseconds() or -1) or -2
  end,
  TIME = function()
    return clock
  end,
  HSET = function(key, ...)
    hashes[key] = hashes[key] or {}
    local fields, added = { ... }, 0
    for i = 1, #fields, 2 do
      if not hashes[key][text(fields[i])] then
        added = added + 1
      end
      hashes[key][text(fields[i])] = text(fields[i + 1])
    end
    return added
  end,
  PERSIST = function(key)
    ends[key] = nil
  end,
  HDEL = function(key, field)
    hashes[key][field] = nil
  end,
  ZADD = function(key, value, name)
    sets[key] = sets[key] or {}
    sets[key][name] = score(value)
  end,
  ZREM = function(key, name)
    sets[key][name] = nil
  end,
  ZRANGE = function(key, from, to, ...) -- with the options that the scripts give it, in their order
    local options = table.concat({ ... }, ' ')
    local found, after, all = {}, string.match(from, '^%((.*)'), members(key)
    for i, name in ipairs(all) do
      local value, inside = sets[key][name], from == -1 and i == #all
      if string.find(options, 'BYSCORE') then
        inside = value <= score(to) and (after and value > score(after) or not after and value >= score(from))
      end
      if inside and #found < 1000 then
        found[#found + 1] = name
        if string.find(options, 'WITHSCORES') then
          found[#found + 1] = value == math.huge and 'inf' or text(value + 0.0)
        elseif #found == 100 then
          break
        end
      end
    end
    return found
  end,
  HGETALL = function(key)
    local all = {}
    for field, value in pairs(hashes[key] or {}) do
      all[#all + 1], all[#all + 2] = field, value
    end
    return all
  end,
  HMGET = function(key, ...)
    local values, fields = {}, { ... }
    for i = 1, #fields do
      values[i] = hashes[key] and hashes[key][fields[i]] or false
    end
    return values
  end,
}

local function call(command, ...)
  local err = failing[command]
  if err then
    error(err, 0)
  end
  local words, step = { command }, command == 'HSET' and 2 or 1
  if command ~= 'PEXPIRE' and command ~= 'PTTL' then
    for i = 2, select('#', ...), step do
      words[#words + 1] = (select(i, ...))
    end
  end
  log[#log + 1] = table.concat(words, ' ')
  return commands[command](...)
end

redis = {
  call = call,
  pcall = function(...)
    local ok, reply = pcall(call, ...)
    if ok then
      return reply
    end
    return type(reply) == 'table' and reply or { err = reply }
  end,
  error_reply = function(message)
    return { err = message }
  end,
}

local requests = {
  flush = function()
    hashes, sets, strings, ends = {}, {}, {}, {}
    return {}
  end,
  hset = function(...)
    commands.HSET(...)
    return {}
  end,
  set = function(key, value)
    strings[key] = value
    return {}
  end,
  hgetall = function(key)
    local answer = {}
    for field, value in pairs(hashes[key] or {}) do
      answer[#answer + 1] = field
      answer[#answer + 1] = value
    end
    return answer
  end,
  fail = function(command, form, message)
    failing[command] = nil
    if message ~= '' then
      failing[command] = form == 'table' and { err = message } or message
    end
    return {}
  end,
  time = function(...)
    clock = { ... }
    return {}
  end,
  commands = function()
    local answer = log
    log = {}
    return answer
  end,
  use = function(number)
    script = scripts[number + 0]
    return {}
  end,
  run = function(keys, ...)
    KEYS, ARGV = {}, {}
    for i, value in ipairs({ ... }) do
      if i <= keys + 0 then
        KEYS[#KEYS + 1] = value
      else
        ARGV[#ARGV + 1] = value
      end
    end
    local ok, reply = pcall(script)
    if not ok then
      return { 'error', 'uncaught: ' .. tostring(reply) }
    elseif type(reply) == 'number' then
      reply = { reply }
    elseif not reply then
      return { 'nil', '' }
    elseif reply.err then
      return { 'error', reply.err }
    end
    local answer = {}
    for i, value in ipairs(reply) do
      answer[i] = tostring(value) -- of a double it has a point
    end
    return answer
  end,
}

for count in io.lines() do
  local request = {}
  for i = 1, count + 0 do
    request[i] = io.read()
  end
  local answer = requests[request[1]](table.unpack(request, 2))
  io.write(#answer, '\n')
  for _, line in ipairs(answer) do
    io.write(line, '\n')
  end
  io.flush()
end
