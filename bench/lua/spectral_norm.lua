-- The largest singular value of a matrix that is given by a function: many small calls.
local function element(i, j)
  local diagonal = i + j - 1
  return 1 / (diagonal * (diagonal - 1) / 2 + i)
end

local function multiply(from, to, n)
  for i = 1, n do
    local sum = 0
    for j = 1, n do sum = sum + element(i, j) * from[j] end
    to[i] = sum
  end
end

local function multiply_transposed(from, to, n)
  for i = 1, n do
    local sum = 0
    for j = 1, n do sum = sum + element(j, i) * from[j] end
    to[i] = sum
  end
end

local function norm(n)
  local u, v, between = {}, {}, {}
  for i = 1, n do u[i] = 1 end
  for _ = 1, 10 do
    multiply(u, between, n)
    multiply_transposed(between, v, n)
    multiply(v, between, n)
    multiply_transposed(between, u, n)
  end
  local products, squares = 0, 0
  for i = 1, n do products, squares = products + u[i] * v[i], squares + v[i] * v[i] end
  return math.sqrt(products / squares)
end

return function(times)
  for _ = 1, times do assert(math.abs(norm(60) - 1.2742) < 0.001) end
end
