#!lua flags=allow-cross-slot-keys
-- The head of take.lua for keys of several hash slots that one master of a cluster serves, since Redis 7.0. A script may
-- touch these only if it declares none. A key that the master does not serve, or not any more, is answered as a broken
-- one.
--
-- ARGV  the keys, the arguments of take.lua, and the number of keys. The keys come first so that an index of KEYS is one
--       of ARGV, and the client finds the master by the first of them.
-- Reply as of take.lua, with two differences: if a key of a call is broken, also one of a shadow, nothing of the call is
--       carried out, and all its charges are answered with -1; and that is so for a script of one call, too. The caller
--       begins such calls anew, with declared keys.
local KEYS = ARGV

