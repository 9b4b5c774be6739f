-- Loads the same chunk $UU_TEST_SAME times, then $UU_TEST_CHUNKS others, and runs each, which takes a sample of itself.
-- All but the first are soon garbage, and later ones reuse their memory. The name of a chunk has its number in it, and
-- the line that runs follows from the number.
local count = tonumber(os.getenv("UU_TEST_CHUNKS"))
local same = tonumber(os.getenv("UU_TEST_SAME"))
local load = loadstring or load
if not cap then require "cap" end

local function chunk(text, name)
  local run = assert(load(text, name))
  run()
end

local padding = ("x"):rep(60)
-- The same one again and again, with a number of empty lines before it.
for i = 1, same do
  chunk(("\n"):rep(i % 97) .. "sample() return 1", "=same")
end
for i = 1, count do
  local text = ("\n"):rep(i % 97) .. "sample() return 1"
  if i % 3 == 0 then
    chunk(text, ("=%06d"):format(i))
  elseif i % 3 == 1 then
    chunk(text, ("@%s%06d.lua"):format(padding, i))
  else
    -- Named by its own first line.
    chunk(("local n = %06d "):format(i) .. text)
  end
end
