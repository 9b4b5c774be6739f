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
