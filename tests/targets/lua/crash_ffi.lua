-- LuaJIT: a null pointer is written to, first by the interpreter, or by a compiled trace.
local ffi = require("ffi")
local compiled = arg[1] == "trace"

local function store(place)
    place[0] = 1
end

local function caller(place)
    store(place)
    return 1
end

local buffer = ffi.new("int[1]")
if compiled then
    for _ = 1, 1000 do
        caller(buffer)
    end
end
for i = 1, 1000 do
    caller(i == 500 and ffi.cast("int *", 0) or buffer)
end
