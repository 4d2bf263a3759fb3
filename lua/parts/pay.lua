-- Sets times to 1 if a bucket of tokens can pay a charge, and to 0 if it cannot.
times = 1
if need > 0 and debt >= 0 and (need > capacity or tokens + debt < need) then
  times = 0
end
