-- Sets the clock of a script of one call, whose argument is nil for the server's own.
if server_clock then
  local time = call('TIME') -- seconds, and microseconds within the second
  now = time[1] * 1000000 + time[2]
  now_text, earliest = format('%d', now), 0
  if #now_text == 16 then -- not on a server of 32 bits, which cannot print integers of 53 so
    integer = '%d'
  else
    now_text = format(integer, now)
  end
else
  now = now_text + 0
end
