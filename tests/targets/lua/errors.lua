-- Functions that fail: their frames exist while the handler runs, and not afterwards.
if not cap then require "cap" end
pcall(function() cap("E{main_chunk} E{function_<errors.lua:3>} ~cap") end)
xpcall(function() error("x") end, function(m) cap("E{main_chunk} E{function_<errors.lua:4>} E{function_<errors.lua:4>} ~cap") return m end)
local function deep(n)
  if n == 0 then error("deep") end
  return (deep(n - 1))
end
pcall(deep, 10)
cap("E{main_chunk} ~cap")
pcall(function()
  pcall(deep, 3)
  local t = setmetatable({}, { __index = function(_, k) error(k) end })
  pcall(function() return t.x end)
  cap("E{main_chunk} E{function_<errors.lua:11>} ~cap")
end)
-- The error is the runtime's own.
xpcall(function() local x = nil; return x.y end, function(m) cap() return m end)
xpcall(function() return 1 + {} end, function(m) cap() return m end)
