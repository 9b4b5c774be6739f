-- Sampled after every instruction: traces that move their base. They return to the caller of the function that they
-- began in, or end where the trace of a function that they call begins.
if not step then require "cap" end
jit.opt.start("hotloop=2", "hotexit=2")

local function tail(n)
  if n == 0 then
    return n
  end
  return tail(n - 1) --> tail
end

local function down(n)
  if n == 0 then
    return n
  end
  local r = down(n - 1) --> down
  return r + 1
end

local function fib(n)
  if n < 2 then
    return n
  end
  local x = fib(n - 1) --> fib
  local y = fib(n - 2) --> fib
  return x + y
end

local function round(n)
  for i = 1, n do
    local t = tail(i % 7) --> tail
    local d = down(i % 11) --> down
    local f = fib(i % 8) --> fib
  end
end

round(200) --> round
assert(require("jit.util").traceinfo(1), "nothing was compiled")
-- Traces that exist are still executed. No more are compiled, which would be most of the instructions.
jit.off()
jit.opt.start("hotexit=1000")
step(true)
round(40) --> round
step(false)
