-- A ring of coroutines that hand a token on: resume and yield.
local wrap, yield = coroutine.wrap, coroutine.yield

local function member(weight)
  local total = 0
  return wrap(function(token)
    while true do
      total = total + token % weight
      token = yield(token + total % 7)
    end
  end)
end

local function ring(size)
  local members = {}
  for i = 1, size do members[i] = member(i + 2) end
  return members
end

return function(times)
  local members = ring(50)
  for _ = 1, times do
    local token = 1
    for _ = 1, 20 do
      for i = 1, #members do token = members[i](token) % 65521 end
    end
    assert(token == token)
  end
end
