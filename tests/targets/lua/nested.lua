-- One activation: no native frame between a, b and the chunk.
if not cap then require "cap" end
local function a(x, shape)
  local y = x + 1
  cap(shape)
  return y
end
local function b(x)
  return (a(x, "E{main_chunk b a} ~cap"))
end
b(1)

-- Names as the debug library has them: fields, methods, globals, upvalues, and functions that have none.
local t = {}
function t.field() cap("E{main_chunk field} ~cap") end
t.field()
function t:method() cap("E{main_chunk method} ~cap") end
t:method()
function global() cap("E{main_chunk global} ~cap") end
global()
local function through() a(1, "E{main_chunk through a} ~cap") end
through();
(function() cap() end)()
local key = "by" .. "key"
t[key] = function() cap() end
t[key]()
t[1] = function() cap() end
t[1]()
for _ in function(_, i) if not i then cap() return 1 end end do end

-- A long function, whose lines lie more than 128 instructions apart from its first.
local many = { "local t = {}\n" }
for i = 1, 400 do many[#many + 1] = "t[" .. i .. "] = t.x\n" .. (i % 7 == 0 and ("\n"):rep(i) or "") end
many[#many + 1] = "cap()\nreturn t\n"
local load = loadstring or load
assert(load(table.concat(many), "=long"))()
assert(load("local x = 1\ncap()\nreturn x"))()
assert(load(("cap()\n"), "@" .. ("n"):rep(90) .. ".lua"))()
