-- Many functions with the same names; then the same with a link between two of them that leads nowhere.
if not cap then require "cap" end
local function deep(n)
  if n == 0 then
    for _ = 1, 3 do cap() end
    local r = cap_torn(20)
    return r
  end
  local r = deep(n - 1)
  return r
end
deep(60)
