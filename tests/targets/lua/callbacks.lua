-- Lua functions that C functions call.
if not cap then require "cap" end
local done = 0;
("ab"):gsub(".", function(c)
  done = done + 1
  if done == 1 then cap("E{main_chunk} E{function_<callbacks.lua:4>} ~cap") end
end)
local t = { 3, 1, 2 }
table.sort(t, function(x, y)
  if done < 5 then done = 5 cap("E{main_chunk} E{function_<callbacks.lua:9>} ~cap") end
  return x < y
end)
local function nest(n)
  if n == 0 then return cap() end
  return (("x"):gsub(".", function() nest(n - 1) end))
end
nest(60)
-- In 5.1 words follow the instruction that makes a closure. They look like instructions that load an upvalue or a local
-- variable into the register of the function that is called.
local outer = 0
function call_it(f) f() end
function takes(f)
  if outer == 0 then cap() end
  return f
end
local function first_is_called()
  takes(function() return outer end)
  takes(function() return done, outer, t end)(1)
end
first_is_called()
local function with_local(n)
  local m = n
  takes(function() return m + n + outer end)
end
with_local(1)
call_it(function() takes(function() return outer, done end) end)
