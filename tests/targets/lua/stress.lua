-- Stacks that grow and move, coroutines that begin and end, errors, traces that are flushed, code that is made and
-- collected. `--> NAME...` lists the functions that a line may call, as in async.lua. `fork` is a function of the host:
-- true in the child, which continues for a while with a copy of all this.
local unpack, load = unpack or table.unpack, loadstring or load
local wrap, yield = coroutine.wrap, coroutine.yield
local jit = jit

local function work(n)
  local s = 0
  for i = 1, n do
    s = (s * 31 + i) % 65521
  end
  return s
end

local function step(n)
  for i = 1, n do
    yield(work(3)) --> work
  end
  return n
end

local function body(n)
  local inner = wrap(step) -->
  for i = 1, n do
    inner(n) --> step
    yield(i)
  end
end

local function churn(n)
  for i = 1, n do
    local co = wrap(body)
    for j = 1, 1 + i % 3 do
      co(4) --> body
    end
    collectgarbage("step")
  end
end

local function grow(n, ...)
  if n == 0 then
    local w = work(5) --> work
    return select("#", ...)
  end
  local r = grow(n - 1, n, ...) --> grow
  return r
end

local function deep(n)
  if n == 0 then
    return 0
  end
  local r = 1 + deep(n - 1) --> deep
  return r
end

local function fail(n)
  if n == 0 then
    error("x", 0) --> handler
  end
  local r = fail(n - 1) --> fail
  return r
end

local function failing()
  local r = fail(2) --> fail
  return r
end

local function handler(m)
  local w = work(3) --> work
  return m
end

local function replace(c)
  local ok = pcall(fail, 3) --> fail
  return c
end

local function storm(n)
  for i = 1, n do
    pcall(fail, i % 40) --> fail
    xpcall(failing, handler) --> failing handler
    local co = coroutine.create(fail)
    coroutine.resume(co, 4) --> fail
    local s = ("abc"):gsub(".", replace) --> replace
  end
end

local function hot(n)
  local t = {}
  for i = 1, n do
    t[i % 8 + 1] = work(8) --> work
  end
  return t
end

local function traces(n)
  for i = 1, n do
    hot(200) --> hot
    if jit then
      jit.flush()
    end
  end
end

local function made(n)
  for i = 1, n do
    local f = load("local a = ... ; local g = function(x) return x + " .. i .. " end ; return g(a)", "=made")
    local r = f(i)
  end
end

local function round(n)
  churn(n) --> churn
  grow(60 + n % 100, n) --> grow
  deep(500 + n * 37 % 3000) --> deep
  storm(n) --> storm
  traces(n) --> traces
  made(n) --> made
end

for i = 1, 12 do
  round(i) --> round
  if fork and i == 6 and fork() then
    round(3) --> round
    os.exit(0)
  end
end
