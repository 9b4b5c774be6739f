-- Sampled after every instruction: everything that changes which functions run. `--> NAME...` lists the functions that
-- a line may call, as in async.lua.
if not step then require "cap" end
local wrap, yield, create, resume = coroutine.wrap, coroutine.yield, coroutine.create, coroutine.resume
local version = jit and 0 or tonumber(_VERSION:match("5%.(%d)"))
if jit then jit.off() end
-- The runtime has no hooks for functions that run in a hook or a finalizer: these call `note` as they begin and end.
local note, hook = note, hook

local function leaf(n)
  local x = n + 1
  return x
end

local function calls(n)
  local x = leaf(n) --> leaf
  x = x + leaf(x) --> leaf
  return x
end

local function tail(n)
  if n == 0 then
    return leaf(n) --> leaf
  end
  return tail(n - 1) --> tail
end

local function varargs(...)
  local n = select("#", ...)
  leaf(n) --> leaf
  return ...
end

-- Coroutines: begun, resumed by another function, ended.
local function inner(n)
  yield(leaf(n)) --> leaf
  local x = leaf(n) --> leaf
  yield(x)
  return x
end

local function body(n)
  local x = inner(n) --> inner
  x = leaf(x) --> leaf
  yield(x)
  return x
end

local function elsewhere(co)
  local x = co(2) --> body
  return x
end

local function coroutines()
  local co = wrap(body)
  co(1) --> body
  elsewhere(co) --> elsewhere
  co(3) --> body
  co(4) --> body
end

-- Coroutines in a coroutine.
local function outer(n)
  local co = wrap(body)
  yield(co(n)) --> body
  yield(co(n)) --> body
end

local function nested()
  local co = wrap(outer)
  co(1) --> outer
  co(1) --> outer
end

-- Coroutines that cannot be resumed: itself, one that resumed another, a dead one.
local function itself(co)
  local _, me = resume(co)
  resume((coroutine.running()))
  leaf(1) --> leaf
end

local function refused()
  local co
  co = create(itself)
  resume(co, co) --> itself
  resume(co, co)
end

-- Errors, and the handlers of errors.
local function fail(n)
  if n == 0 then
    error("x") --> handler
  end
  local r = fail(n - 1) --> fail
  return r
end

local function handler(m)
  local f = leaf(3) --> leaf
  return m
end

local function errors()
  pcall(fail, 2) --> fail
  leaf(1) --> leaf
  if version ~= 1 then
    xpcall(fail, handler, 2) --> fail
  end
  local ok = pcall(leaf, 1) --> leaf
  pcall(error)
end

local function dying(n)
  fail(n) --> fail
end

local function dies()
  local co = create(dying)
  resume(co, 1) --> dying
  resume(co, 1)
end

-- Yields across calls of C functions.
local function protected(n)
  yield(leaf(n)) --> leaf
  yield(leaf(n)) --> leaf
  error("x")
end

local function across(n)
  pcall(protected, n) --> protected
  local f = leaf(4) --> leaf
  yield(f)
  pcall(leaf, n) --> leaf
end

local function yields_across()
  local co = wrap(across)
  for j = 1, 4 do
    co(j) --> across
  end
end

-- Metamethods.
local function index(t, k)
  local v = leaf(k) --> leaf
  return v
end

local function add(a, b)
  local s = leaf(1) --> leaf
  return s
end

local function less(a, b)
  return a.v < b.v
end

local function concat(a, b)
  local s = "s"
  return s
end

local function call(t, n)
  local r = leaf(n) --> leaf
  return r
end

local meta = { __index = index, __add = add, __lt = less, __concat = concat, __call = call }

local function metamethods()
  local t, u = setmetatable({ v = 1 }, meta), setmetatable({ v = 2 }, meta)
  local x = t[1] --> index
  x = t + u --> add
  local l = t < u --> less
  local c = t .. u --> concat
  c = "a" .. "b" .. t --> concat
  x = t(1) --> call
  return x
end

-- Callbacks from C.
local function compare(x, y)
  return x < y
end

local function replace(c)
  local s = c .. "x"
  pcall(leaf, 4) --> leaf
  varargs(c, 1) --> varargs
  return c
end

local function step_of(n, i)
  if i < n then
    return i + 1
  end
end

local function callbacks()
  table.sort({ 3, 1, 2 }, compare) --> compare
  local s = ("ab"):gsub(".", replace) --> replace
  for i in step_of, 2, 0 do --> step_of
    leaf(i) --> leaf
  end
end

-- A stack that has to grow.
local function deep(n)
  if n == 0 then
    return 0
  end
  local r = 1 + deep(n - 1) --> deep
  return r
end

-- Variable arguments, which are moved up on a stack that has to grow.
local function grow(n, ...)
  if n == 0 then
    local count = select("#", ...)
    return count
  end
  local r = grow(n - 1, n, ...) --> grow
  return r
end

-- New coroutines, whose stacks and CallInfos are made as they run.
local function fresh()
  local co = create(deep)
  resume(co, 3) --> deep
  co = create(dying)
  resume(co, 5) --> dying
  co = wrap(grow)
  co(5) --> grow
end

-- Hooks: of calls, returns and lines.
local function hooked()
  note(true)
  note(false)
end

local function watched(n) --> hooked
  local x = n + 1 --> hooked
  return x --> hooked
end --> hooked

local function hooks()
  hook(hooked, watched)
  watched(1) --> watched
  hook()
end

-- Finalizers: of three, from the end of the first to the beginning of the last.
local finalized = 0

local function noted(n)
  note(true)
  local x = n + 1
  note(false)
  return x
end

local function finalizer()
  finalized = finalized + 1
  if finalized == 1 then
    step(true)
    note(false)
  elseif finalized == 2 then
    note(true)
    noted(1) --> noted
    note(false)
  elseif finalized == 3 then
    note(true)
    step(false)
  end
end

local function finalizers()
  -- One may still stand in a slot that is not used any more.
  for i = 1, 4 do
    if newproxy then
      getmetatable(newproxy(true)).__gc = finalizer
    else
      setmetatable({}, { __gc = finalizer })
    end
  end
  collectgarbage("restart")
  while finalized < 3 do
    local t = {} --> finalizer
  end
end

-- To-be-closed variables: in all versions such a loop can be written, from 5.4 on its last value is one.
local function closing()
  local x = leaf(1) --> leaf
  return x
end

local closer = setmetatable({}, { __close = closing })

local function ends()
  for i in step_of, 2, 0, closer do --> step_of
    leaf(i) --> leaf
  end --> closing
end

local function breaks()
  for i in step_of, 2, 0, closer do --> step_of
    leaf(i) --> leaf
    if i == 1 then
      break --> closing
    end
  end --> closing
end

local function returns(n)
  for i in step_of, 2, 0, closer do --> step_of
    return n --> closing
  end
end

local function throws()
  for i in step_of, 2, 0, closer do --> step_of
    error("x")
  end
end

local function waits()
  for i in step_of, 2, 0, closer do --> step_of
    yield(i)
  end --> closing
end

local function closes()
  ends() --> ends
  breaks() --> breaks
  returns(1) --> returns
  pcall(throws) --> throws closing
  local co = wrap(waits)
  for j = 1, 3 do
    co() --> waits
  end
  co = create(throws)
  resume(co) --> throws closing
  coroutine.close(co) --> closing
  co = create(waits)
  resume(co) --> waits
  coroutine.close(co) --> closing
end

local function round()
  calls(1) --> calls
  tail(2) --> tail leaf
  varargs(1, 2, 3) --> varargs
  coroutines() --> coroutines
  nested() --> nested
  refused() --> refused
  errors() --> errors
  dies() --> dies
  if version ~= 1 then
    yields_across() --> yields_across
  end
  metamethods() --> metamethods
  callbacks() --> callbacks
  deep(8) --> deep
  grow(5) --> grow
  fresh() --> fresh
  hooks() --> hooks
end

-- Its steps would be most of the instructions.
collectgarbage("stop")
step(true)
round() --> round
step(false)
if version >= 4 and not os.getenv("UU_TEST_AS_JIT") then
  step(true)
  closes() --> closes
  step(false)
end
finalizers() --> finalizers
