-- Sampled after every instruction: the line that is emitted. The for loop's own instruction is on its first line.
if not step then require "cap" end
if jit then jit.off() end

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

step(true)
lines(3) --> lines
step(false)
