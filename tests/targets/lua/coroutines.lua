-- Coroutines within coroutines: four states on one native stack.
if not cap then require "cap" end
local wrap, running = coroutine.wrap, coroutine.running
wrap(function()
  local c1 = running()
  wrap(function()
    local c2 = running()
    wrap(function()
      cap("E{main_chunk} E{function_<coroutines.lua:4>} E{function_<coroutines.lua:6>} E{function_<coroutines.lua:8>} ~cap", c2, c1)
    end)()
  end)()
end)()

-- Resumed within nested calls, more than once. In 5.3 each of its functions then gets an activation of its own, the
-- outer one after the inner one has returned.
local both = _VERSION == "Lua 5.3" and "E{function_<coroutines.lua:17>} E{inner} ~cap" or "E{function_<coroutines.lua:17> inner} ~cap"
local co = coroutine.create(function()
  local function inner()
    coroutine.yield()
    cap("E{main_chunk resumer} " .. both)
    coroutine.yield()
    cap("E{main_chunk} " .. both)
  end
  inner()
end)
coroutine.resume(co)
local function resumer() coroutine.resume(co) end
resumer()
coroutine.resume(co)

-- A generator in a for loop.
for i in wrap(function() for i = 1, 3 do coroutine.yield(i) end cap() end) do
  if i == 2 then cap("E{main_chunk} ~cap") end
end

-- Many nested coroutines.
local function nest(n, ...)
  if n == 0 then return cap(nil, ...) end
  local outer = { ... }
  return wrap(function() local me = running(); nest(n - 1, me, (unpack or table.unpack)(outer)) end)()
end
nest(30)
