-- Sets the clock of a script of one call to the server's own.
local time = call('TIME') -- seconds, and microseconds within the second
if time.err then
  err = time
  break
end
now_text = time[1] .. time[2]
if #now_text < 16 then -- microseconds of less than six digits
  now_text = format('%.0f', time[1] * 1000000 + time[2])
end
