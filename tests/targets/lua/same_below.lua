-- Samples of one stack in a coroutine, whose innermost function is elsewhere each time: more of its registers are used.
if not cap then require "cap" end
local function many() end
local function deep(n)
  if n == 0 then
    many(cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap(), cap())
    return 0
  end
  return 1 + deep(n - 1)
end
coroutine.wrap(deep)(100)
