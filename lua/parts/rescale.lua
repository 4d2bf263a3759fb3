-- Makes tokens of the unit from those of the unit to, rounded down. Only after a limit was changed.
to = to + 0.0
local whole = math.floor(tokens / from)
local part, result = tokens - whole * from, 0
if part * to < 9007199254740992 then
  result = math.floor(part * to / from)
else
  -- The product does not fit a double: multiply and divide together, a bit of `to` at a time.
  local rest, bit = 0, 4503599627370496
  while bit >= 1 do
    result, rest = result * 2, rest * 2
    if rest >= from then
      result, rest = result + 1, rest - from
    end
    if to % (bit * 2) >= bit then
      rest = rest + part
      if rest >= from then
        result, rest = result + 1, rest - from
      end
    end
    bit = bit / 2
  end
end
result = whole * to + result
if result < -4503599627370496 then
  result = -4503599627370496
end
tokens = math.floor(result)
