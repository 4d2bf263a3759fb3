-- Ends a script of one call, whose function run makes the reply.
local ok, err = pcall(run)
if ok then
  return err
end
if reading and not redis.pcall('HMGET', reading, 'tokens').err then
  return redis.error_reply('ERR the key holds no bucket')
end
--: failure
