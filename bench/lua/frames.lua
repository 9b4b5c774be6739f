-- What a sample costs by the depth of the Lua stack. Prints lines `round what depth ticks`; bench/lua.py makes a table of them.
--
-- Two coroutines of the same depth take turns, so that no walk finds the stack of the one before: each is a whole walk ("fresh").
-- One that takes several in a row shows what the reuse of the last walk leaves ("same"): its innermost function has moved on. The functions are many, called as locals,
-- globals, fields and methods, and are long enough to have lines worth counting.
local frames = require "frames"
local ROUNDS, DEPTHS, SAMPLES = tonumber(arg[1]) or 15, { 120, 320 }, 40
local load, wrap, yield = loadstring or load, coroutine.wrap, coroutine.yield

local FUNCTIONS = 40
local text = { "local take, yield = ...\nlocal t = {}\nlocal leaf\n" }
local function put(...) text[#text + 1] = string.format(...) end
for i = 1, FUNCTIONS do
  local next = i % FUNCTIONS + 1
  put("function %s(%sn, a)\n", i % 2 == 0 and ("t.f" .. i) or ("f" .. i), i % 4 == 2 and "self, " or "")
  for k = 1, 2 + i % 7 do put("  a = a * %d + n\n", k) end
  put("  if n <= 1 then\n    return 1 + leaf(a)\n  end\n")
  for k = 1, 1 + i % 5 do put("  if a == %d then\n    a = a - %d\n  end\n", -k, k) end
  put("  local r = %s(n - 1, a)\n", next % 2 == 1 and ("f" .. next) or next % 4 == 2 and ("t:f" .. next) or ("t.f" .. next))
  put("  return r + 1\nend\n")
end
put("leaf = function(a)\n  while true do\n    local first = take()\n    yield(first, take(), take())\n  end\nend\nreturn f1\n")
local first = assert(load(table.concat(text), "=functions"))(frames.take, yield)

local function median(list)
  table.sort(list)
  return list[math.floor(#list / 2) + 1]
end

local function measure(depth)
  local one, other = wrap(first), wrap(first)
  local fresh, same = {}, {}
  one(depth, 1)
  other(depth, 1)
  for i = 1, SAMPLES do
    local a, b, c = one()
    fresh[i], same[i] = a, c
    other()
    -- The recorder takes the samples out of their ring.
    if i % 10 == 0 then frames.nap(0.01) end
  end
  return median(fresh), median(same)
end

for round = 0, ROUNDS do
  for _, depth in ipairs(DEPTHS) do
    local fresh, same = measure(depth)
    local native = {}
    for i = 1, SAMPLES do native[i] = frames.native(depth) end
    local floor = {}
    for i = 1, 21 do floor[i] = frames.floor(depth) end
    frames.nap(0.01)
    -- The first round meets all names.
    if round > 0 then
      print(round, "fresh", depth, fresh)
      print(round, "same", depth, same)
      print(round, "native", depth, median(native))
      print(round, "floor", depth, median(floor))
    end
  end
end
