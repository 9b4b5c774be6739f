-- Texts that are put together, taken apart and replaced: the string library, and much garbage.
local function line(number)
  local words = {}
  for i = 1, 12 do words[i] = string.format("%s-%d", ("abcdef"):sub(1, i % 6 + 1), number * i % 97) end
  return table.concat(words, " ")
end

local function round(times)
  local length = 0
  for number = 1, times do
    local text = line(number)
    local upper = text:gsub("%a+", string.upper)
    local turned = upper:gsub("(%u+)%-(%d+)", function(word, digits) return digits .. "=" .. word:lower() end)
    local count = 0
    for key, value in turned:gmatch("(%d+)=(%l+)") do count = count + #key + #value end
    local joined = ""
    for i = 1, 10 do joined = joined .. i .. "," end
    length = length + count + #joined + #text:reverse():rep(2)
  end
  return length
end

return function(times)
  for _ = 1, times do assert(round(50) > 0) end
end
