-- More frames than are kept.
if not cap then require "cap" end
local function deep(n)
  if n == 0 then return cap() end
  local r = deep(n - 1)
  return r
end
deep(15000)
