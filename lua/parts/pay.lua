-- Sets times to 1 if a bucket of tokens can pay a charge, and to 0 if it cannot.
local times = 1
if (tokens + debt < need or need > capacity) and need > 0 and debt >= 0 then
  times = 0
end
