-- Stands in known functions, for looks from outside: writes its own stack, as the runtime knows it, innermost first, a
-- line "file:line" for each Lua function and then an empty one, and waits on the same line until its input ends.
local function say()
  local level, out = 2, {}
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.what ~= "C" then out[#out + 1] = info.source:match("[^/]*$") .. ":" .. info.currentline end
    level = level + 1
  end
  io.write(table.concat(out, "\n"), "\n\n")
  io.flush()
end

local function wait() say(); io.read() return 1 end

local function deep(n)
  if n == 0 then
    return (wait())
  end
  return 1 + deep(n - 1)
end

local function sorted()
  local values = { 3, 1, 2 }
  table.sort(values, function(a, b) deep(3); return a < b end)
end

print(pcall(sorted))
