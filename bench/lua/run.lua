-- run.lua PROGRAM TIMES FILE: runs a program of this folder that many times, and writes to FILE: the CPU seconds of this process;
-- under LuaJIT also how many traces it completed, how many of them are still there, and how often all were thrown away.
local program, times, file = arg[1], tonumber(arg[2]), arg[3]
local folder = arg[0]:match("^(.*/)") or "./"
local completed, flushes = 0, 0
if jit then
  jit.attach(function(what)
    if what == "stop" then completed = completed + 1 elseif what == "flush" then flushes = flushes + 1 end
  end, "trace")
end
assert(loadfile(folder .. program .. ".lua"))()(times)
local left = 0
if jit then
  jit.off()
  local info = require("jit.util").traceinfo
  for number = 1, 65535 do
    if info(number) then left = left + 1 end
  end
end
local out = assert(io.open(file, "w"))
out:write(os.clock(), " ", completed, " ", left, " ", flushes, "\n")
out:close()
