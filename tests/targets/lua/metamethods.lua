-- Metamethods: activations without a C function between them.
if not cap then require "cap" end
local version = tonumber(_VERSION:match("5%.(%d)"))
local function event() cap() return 1 end
local m = { __index = function(_, k) cap(k == "key" and "E{main_chunk} E{" .. (version > 1 and "__index" or "function_<metamethods.lua:5>") .. "} ~cap") return k end }
for _, name in ipairs { "newindex", "add", "sub", "mul", "div", "mod", "pow", "unm", "concat", "lt", "le", "call", "len", "idiv", "band", "bor", "bxor", "shl", "shr", "bnot" } do
  m["__" .. name] = event
end
m.__eq = event
local a, b = setmetatable({}, m), setmetatable({}, m)
local x = a.key
a.key = 1
x = a + 1
x = 1 - a
x = a * b
x = a / 2
x = a % 2
x = a ^ 2
x = -a
x = a .. "x"
x = "x" .. a .. "y"
x = a < b
x = a <= b
x = a == b
x = a(1)
if version > 1 then x = #a end
if version > 2 then
  x = load("local a, b = ... ; local x = a // 2; x = a & 1; x = a | 1; x = a ~ 1; x = a << 1; x = a >> 1; x = ~a")
  x(a, b)
end
local function loop()
  for i = 1, 2 do x = a.other end
end
loop()
if version > 3 then
  load([[
    local event = ...
    do local c <close> = setmetatable({}, { __close = event }) end
    local function f() local c <close> = setmetatable({}, { __close = event }) return 1 end
    f()
  ]])(event)
end
if version > 1 then
  local function drop() setmetatable({}, { __gc = event }) end
  drop()
  collectgarbage()
end
