-- Permutations of 1..7, each turned over until 1 is in front: indexing of arrays, and short loops.
local function flips(permutation, work)
  local first, count = permutation[1], 0
  if first == 1 then return 0 end
  for i = 1, #permutation do work[i] = permutation[i] end
  while first ~= 1 do
    local low, high = 1, first
    while low < high do
      work[low], work[high] = work[high], work[low]
      low, high = low + 1, high - 1
    end
    first, count = work[1], count + 1
  end
  return count
end

-- Steinhaus's order: each permutation is the one before with two neighbours exchanged.
local function visit(n)
  local permutation, work, sign = {}, {}, {}
  for i = 1, n do permutation[i], sign[i] = i, -1 end
  local most, sum, parity = 0, 0, 1
  while true do
    local count = flips(permutation, work)
    if count > most then most = count end
    sum, parity = sum + parity * count, -parity
    local largest = 0
    for i = 1, n do
      local at = i + sign[permutation[i]]
      if permutation[i] > largest and at >= 1 and at <= n and permutation[at] < permutation[i] then largest = permutation[i] end
    end
    if largest == 0 then return most, sum end
    for i = 1, n do
      if permutation[i] == largest then
        local at = i + sign[largest]
        permutation[i], permutation[at] = permutation[at], largest
        break
      end
    end
    for i = largest + 1, n do sign[i] = -sign[i] end
  end
end

return function(times)
  for _ = 1, times do assert(visit(7) == 16) end
end
