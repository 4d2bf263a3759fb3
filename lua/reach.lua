#!lua flags=allow-cross-slot-keys
-- Reports which keys a script without declared keys may read on a master of a cluster. It writes nothing.
--
-- ARGV  the keys
-- Reply an integer for each key: 1 if it may be read, else 0
local reply = {}
for i = 1, #ARGV do
  reply[i] = redis.pcall('HMGET', ARGV[i], 'tokens').err and 0 or 1
end
return reply
