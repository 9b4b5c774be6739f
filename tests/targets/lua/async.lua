-- A program that is sampled at any place. `--> NAME...` lists the functions that a line may call, also through C and
-- coroutines. (5.1 removes a tail call's caller after the callee began.) A function ends at its indentation's `end`.
local seconds = tonumber((...) or os.getenv("UU_TEST_SECONDS")) or 1
local unpack, wrap, yield = unpack or table.unpack, coroutine.wrap, coroutine.yield
local version = tonumber(_VERSION:match("5%.(%d)")); if os.getenv("UU_TEST_JIT") == "off" then jit.off() end

local function lines(n)
  local a, b, c, d, e = 1.5, 2.5, 3.5, 4.5, 5.5
  for i = 1, n do
    a = a * 0.5 + b * 0.25
    b = b * 0.5 + c * 0.25
    c = c * 0.5 + d * 0.25
    d = d * 0.5 + e * 0.25
    e = e * 0.5 + a * 0.25
  end
  return a + b + c + d + e
end

local function fib(n)
  if n < 2 then
    return n
  end
  local x = fib(n - 1) --> fib
  local y = fib(n - 2) --> fib
  return x + y
end

local function index(t, k)
  local v = k * 2
  return v
end

local function add(a, b)
  local s = fib(6) --> fib
  return s
end

local function less(a, b)
  return a.v < b.v
end

local function concat(a, b)
  local r = "x" .. tostring(1)
  return r
end

local meta = { __index = index, __add = add, __lt = less, __concat = concat }

local function metamethods(n)
  local t, u = setmetatable({ v = 1 }, meta), setmetatable({ v = 2 }, meta)
  local sum = 0
  for i = 1, n do
    sum = sum + t[i] --> index
    sum = sum + (t + u) --> add
    local l = t < u --> less
    local c = t .. u --> concat
  end
  return sum
end

local function compare(x, y)
  return x < y
end

local function replace(c)
  local f = fib(4) --> fib
  return c
end

local function callbacks(n)
  for i = 1, n do
    local t = {}
    for j = 1, 20 do
      t[j] = (j * 7919) % 31
    end
    table.sort(t, compare) --> compare
    local s = ("abcdef"):gsub(".", replace) --> replace
  end
end

local function fail(n)
  if n == 0 then
    error("x") --> handler
  end
  local r = fail(n - 1) --> fail
  return r
end

local function handler(m)
  local f = fib(3) --> fib
  return m
end

local function errors(n)
  for i = 1, n do
    pcall(fail, 5) --> fail
    if version > 1 then
      xpcall(fail, handler, 3) --> fail
    end
  end
end

local function inner(n)
  for i = 1, n do
    yield(fib(5)) --> fib
  end
end

local function body(n)
  local first = wrap(inner) -->
  for i = 1, n do
    local x = first(n) --> inner
    yield(x)
  end
  inner(n) --> inner
end

local function coroutines(n)
  for i = 1, n do
    local co = wrap(body)
    for j = 1, 6 do
      local x = co(4) --> body
    end
  end
end

local function protected()
  for i = 1, 3 do
    yield(fib(4)) --> fib
  end
end

local function across()
  pcall(protected) --> protected
  local f = fib(4) --> fib
end

local function yields_across(n)
  for i = 1, n do
    local co = wrap(across)
    for j = 1, 4 do
      co() --> across
    end
  end
end

local function varargs(...)
  local n = select("#", ...)
  if n == 0 then
    return 0
  end
  local first = ...
  return first + fib(3), ... --> fib
end

local function tail(n)
  if n == 0 then
    local f = fib(3) --> fib
    return f
  end
  return tail(n - 1) --> tail
end

local function garbage(n)
  local keep = {}
  for i = 1, n do
    local t = { i, { i }, tostring(i) }
    keep[i % 10 + 1] = function() return t end
    local s = "a" .. i .. "b"
  end
  return #keep
end

local function deep(n)
  if n == 0 then
    local f = fib(5) --> fib
    return f
  end
  local r = 1 + deep(n - 1) --> deep
  return r
end

local function divisor(a, b)
  while b ~= 0 do
    a, b = b, a % b
  end
  return a
end

local function remainders(n)
  local x, y = 0.5, 1
  for i = 1, n do
    x = (x * 3.5 + i) % 7.25
    x = x + i % -2.5
    y = (y * 31 + i) % 1009
    y = y + (i % 7) % 3
  end
  return x + y
end

-- LuaJIT computes `%` in functions of its VM in which its unwind entry is wrong.
local function modulo(n)
  local s = remainders(10 * n) --> remainders
  for i = 1, n do
    s = s + divisor(1071 + i, 462) --> divisor
  end
  return s
end

-- UU_TEST_PART: one of these alone.
local only = os.getenv("UU_TEST_PART")

local function part(name)
  return only == nil or only == name
end

local function round()
  if part("lines") then --> part
    lines(20000) --> lines
  end
  if part("calls") then --> part
    fib(10) --> fib
  end
  if part("metamethods") then --> part
    metamethods(20) --> metamethods
  end
  if part("callbacks") then --> part
    callbacks(10) --> callbacks
  end
  if part("errors") then --> part
    errors(20) --> errors
  end
  if part("coroutines") then --> part
    coroutines(4) --> coroutines
  end
  if part("yields_across") and (version > 1 or jit) then --> part
    yields_across(4) --> yields_across
  end
  for i = 1, 30 do
    if part("varargs") then --> part
      varargs(1, 2, unpack({ 3, 4, 5 })) --> varargs
    end
    if part("tails") then --> part
      tail(20) --> tail
    end
  end
  if part("garbage") then --> part
    garbage(200) --> garbage
  end
  if part("deep") then --> part
    deep(only and 3000 or 150) --> deep
  end
  if only == "modulo" then
    modulo(100) --> modulo
  end
end

local clock = os.clock
while clock() < seconds do
  round() --> round
end
