#!lua flags=allow-cross-slot-keys
-- The head of take.lua for keys of several hash slots that one master of a cluster serves, since Redis 7.0. A script may
-- touch such keys only if it declares none. A key that the master does not serve is answered as a broken one.
--
-- ARGV  the keys, the arguments of take.lua, and the number of keys. The keys come first: so an index of KEYS is one of
--       ARGV, and the client finds the master by the first key.
-- Reply as of take.lua, but a call with a broken key charges nothing, and all its charges have -1. That is so for the key
--       of a shadow, and for the only call of a script, too. The caller sends such a call again, and declares its keys.
local KEYS = ARGV

