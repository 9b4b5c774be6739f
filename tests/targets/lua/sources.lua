-- Chunks from texts, with all kinds of beginnings and ends: lines of all lengths, empty ones, characters that end a
-- line in only some versions. Each is shown as the runtime's debug library shortens it.
local load = loadstring or load
if not cap then require "cap" end

local run = "local r = cap()"
-- Lengths of the first line, with and without another line after it.
for length = #run, 70 do
  local line = run .. (" "):rep(length - #run)
  assert(load(line))()
  assert(load(line .. "\n"))()
  assert(load(line .. "\nreturn 2"))()
end
for _, begin in ipairs { "\n", "\n\n", "\r\n", "-- one\r\n", "-- one\r-- two\n", "-- one\ttwo\n", "--[[ \"]\" ]] ", "-- \195\164\n", "  " } do
  assert(load(begin .. run))()
end
-- The name is cut in the middle of a character.
load("-- " .. ("\195\164"):rep(40) .. "\n" .. run)()
load("-- ." .. ("\195\164"):rep(40) .. "\n" .. run)()
-- Names.
for _, name in ipairs { "=", "=x", "@", "@x.lua", "@" .. ("x"):rep(100), "=" .. ("x"):rep(100), "x", "[x]", "" } do
  load(run, name)()
end
-- What LuaJIT writes in Lua itself.
if jit then
  table.foreach({ 1 }, function() cap() end)
  pcall(table.foreach, { 1 }, function() cap() end)
end
