-- Samples on traces, by C functions called through the FFI. The script itself writes down what is expected, since the
-- runtime has no stack of its own on traces. The lines are the same with the compiler on and off. On a trace, a place
-- is available only where the trace may be left, so each sample is taken on a line that compares something.
local ffi = require "ffi"
ffi.cdef "void cap(void); void qsort(void *, size_t, size_t, int (*)(const int *, const int *));"
local C = ffi.load(os.getenv "UU_TEST_CAP")
local oracle = assert(io.open(os.getenv "UU_TEST_ORACLE", "a"))
local file = debug.getinfo(1, "S").source:sub(2)
local off = os.getenv "UU_TEST_JIT" == "off"
if off then jit.off() else jit.opt.start("hotloop=2", "hotexit=2") end

-- Lines are identified by the marks in their comments.
local line, number = {}, 0
for text in io.lines(file) do
  number = number + 1
  local mark = text:match "%-%-@(%w+)"
  if mark then line[mark] = number end
end

-- Expected frames, innermost first: the mark of the line, the mark of the definition (none: the chunk), the name.
local function expect(frames)
  local out = {}
  for i, f in ipairs(frames) do
    out[i] = ('["@%s",%d,%d,"%s","%s"]'):format(file, line[f[1]], line[f[2]] or 0, f[3] or "", f[3] and "local" or "")
  end
  oracle:write('{"pid":0,"tid":0,"shape":"","frames":[', table.concat(out, ","), "]}\n")
end

-- An inlined function, called on two lines of a loop.
local function inlined(x) --@inlined
  if x >= 0 then C.cap() end --@cap
  return x + 1
end
local function loop(n) --@loop
  local x = 0
  for _ = 1, n do
    x = inlined(x) --@first
    x = x % 1000
    x = inlined(x) --@second
  end
  return x
end
local leaf = { "cap", "inlined", "inlined" }
for _ = 1, 50 do
  expect { leaf, { "first", "loop", "loop" }, { "loops" } }
  expect { leaf, { "second", "loop", "loop" }, { "loops" } }
end
oracle:flush()
loop(50) --@loops

-- Side exits: three ways through a loop, each with lines of its own.
local function ways(n) --@ways
  local x = 0
  for i = 1, n do
    if i % 3 == 0 then
      if x >= 0 then C.cap() end --@way3
      x = x + 1
    elseif i % 5 == 0 then
      x = x + inlined(i) --@way5
    else
      x = x + 2
      if x >= 0 then C.cap() end --@way1
    end
  end
  return x
end
for i = 1, 60 do
  if i % 3 == 0 then
    expect { { "way3", "ways", "ways" }, { "all" } }
  elseif i % 5 == 0 then
    expect { leaf, { "way5", "ways", "ways" }, { "all" } }
  else
    expect { { "way1", "ways", "ways" }, { "all" } }
  end
end
oracle:flush()
ways(60) --@all

-- Two levels of inlining, a closure that is made again each time, and a method.
local Object = {}
Object.__index = Object
function Object:deep(x) --@deep
  return inlined(self.by + x) + 0 --@indeep
end
local object = setmetatable({ by = 2 }, Object)
local function levels(n) --@levels
  local x = 0
  for i = 1, n do
    x = object:deep(x) + 0 --@calldeep
    local made = function(y) --@made
      if y >= 0 then C.cap() end --@inmade
      return y + i
    end
    x = made(x) + 0 --@callmade
  end
  return x
end
for _ = 1, 40 do
  expect { leaf, { "indeep", "deep", "deep" }, { "calldeep", "levels", "levels" }, { "level" } }
  expect { { "inmade", "made", "made" }, { "callmade", "levels", "levels" }, { "level" } }
end
oracle:flush()
levels(40) --@level

-- Recursion, which traces unroll.
local function down(n) --@down
  if n == 0 then C.cap() return 0 end --@bottom
  return down(n - 1) + 1 --@further
end
local function rounds(n) --@rounds
  for _ = 1, n do
    down(10) --@begin
  end
end
for _ = 1, 30 do
  local frames = { { "bottom", "down", "down" } }
  for i = 2, 11 do frames[i] = { "further", "down", "down" } end
  frames[12], frames[13] = { "begin", "rounds", "rounds" }, { "round" }
  expect(frames)
end
oracle:flush()
rounds(30) --@round

-- In a coroutine, and after all traces were flushed.
local function body() --@body
  loop(10) --@before
  coroutine.yield()
  jit.flush()
  loop(10) --@after
end
local co = coroutine.create(body)
local function resume() --@resume
  local ok = coroutine.resume(co) --@resuming
  return ok
end
for _, mark in ipairs { "before", "after" } do
  for _ = 1, 10 do
    for _, way in ipairs { "first", "second" } do
      expect { leaf, { way, "loop", "loop" }, { mark, "body" }, { "resuming", "resume", "resume" }, { "twice" } }
    end
  end
end
oracle:flush()
for _ = 1, 2 do
  resume() --@twice
end

-- C that calls back into Lua.
local sorts = 0
local function compare(a, b) --@compare
  sorts = sorts + 1
  C.cap() --@incompare
  return a[0] - b[0]
end
local callback = ffi.cast("int (*)(const int *, const int *)", compare)
local function sort() --@sort
  local numbers = ffi.new("int[5]", 5, 3, 1, 4, 2)
  ffi.C.qsort(numbers, 5, 4, callback) --@qsort
end
jit.off(sort)
sort() --@sorting
for _ = 1, sorts do
  expect { { "incompare", "compare" }, { "qsort", "sort", "sort" }, { "sorting" } }
end
oracle:close()
if not off then assert(require("jit.util").traceinfo(1), "nothing was compiled") end
