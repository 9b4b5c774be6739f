-- A stack of more frames than are kept, with a function that occurs only in its middle.
local load = loadstring or load
if not cap then require "cap" end
local function deep(n, f)
  if n == 0 then
    local r = f()
    return r
  end
  local r = deep(n - 1, f)
  return r
end
local text = "local f, g = ... return function() local r = f(6000, g) return r end"
deep(6000, load(text, "=nowhere_else")(deep, cap))
