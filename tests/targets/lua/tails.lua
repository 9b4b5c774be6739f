-- Tail calls leave no frame; varargs move one.
if not cap then require "cap" end
local function c() cap("E{main_chunk function_<tails.lua:3>} ~cap") return 1 end
local function b() return c() end
b()
local function v(...)
  local n = select("#", ...)
  cap("E{main_chunk v} ~cap")
  return n, ...
end
local big = {}
for i = 1, 200 do big[i] = i end
v((unpack or table.unpack)(big))
local function loop(n) if n == 0 then cap() return end return loop(n - 1) end
loop(1000)

-- A hook is called from the function that it interrupts.
local hooked = false
local function worker() local x = 0 for i = 1, 10 do x = x + i end return x end
debug.sethook(function() if not hooked then hooked = true cap() end end, "", 5)
worker()
debug.sethook()
