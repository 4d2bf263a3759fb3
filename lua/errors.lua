
-- The end of the scripts that have a function run: its errors, as clients know them, begin with their first word. Before
-- Redis 7 and on KeyDB, some begin with the line that called, and in miniredis that has no name: see take.lua.
local ok, reply = pcall(run)
if ok then
  return reply
end
local text = type(reply) == 'table' and reply.err or reply
return redis.error_reply(string.match(text, '^[@%w_]*: ?%d+: %-?(.-)%s*$') or text)
