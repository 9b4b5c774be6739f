-- Coroutines that yield across pcall and metamethods (5.2 and later): when they are resumed, only the innermost
-- functions have a native frame of their own.
if not cap then require "cap" end
local yield, wrap = coroutine.yield, coroutine.wrap
local co = wrap(function()
  pcall(function()
    yield()
    cap("E{main_chunk} E{function_<yield_across.lua:5>} E{function_<yield_across.lua:6>} ~cap")
  end)
  cap("E{main_chunk} E{function_<yield_across.lua:5>} ~cap")
end)
co(); co()

local t = setmetatable({}, { __index = function(_, k) yield() cap() return k end })
co = wrap(function()
  local function f() return t.x .. "" end
  pcall(function() f() cap() end)
  cap()
end)
co(); co()

-- Three deep.
co = wrap(function()
  pcall(function()
    pcall(function()
      pcall(function() yield() cap() end)
      cap()
    end)
    yield()
    cap()
  end)
end)
co(); co(); co()
