-- C that calls back, sampled after every instruction. `--> NAME...` lists the functions that a line may call.
if not step then require "cap" end
local ffi = require "ffi"
jit.off()
ffi.cdef "void qsort(void *, size_t, size_t, int (*)(const int *, const int *));"

local function compare(a, b)
  local x, y = a[0], b[0]
  return x - y
end

local callback = ffi.cast("int (*)(const int *, const int *)", compare)

local function sorts()
  local array = ffi.new("int[4]", { 3, 1, 2, 0 })
  ffi.C.qsort(array, 4, 4, callback) --> compare
  return array[0]
end

-- Once before, so that all symbols are bound.
sorts() --> sorts
collectgarbage("stop")
step(true)
sorts() --> sorts
step(false)
