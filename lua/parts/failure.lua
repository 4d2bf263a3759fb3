-- Ends a script that failed by err, with it. Before Redis 7 and on KeyDB, some errors begin with the line that
-- called: '@user_script: 183: -OOM command …'. Clients know errors by their first word.
local text = type(err) == 'table' and err.err or err
return redis.error_reply(string.match(text, '^@user_script: %d+: %-?(.-)%s*$') or text)
