-- Stacks that grow under many functions, and tail calls, sampled after each instruction. `--> NAME...`: see async.lua.
if not step then require "cap" end

local function leaf(n)
  local x = n + 1
  return x
end

local function deep(n)
  if n == 0 then
    return 0
  end
  local r = 1 + deep(n - 1) --> deep
  return r
end

local function grow(n, ...)
  if n == 0 then
    local count = select("#", ...)
    return count
  end
  local r = grow(n - 1, n, ...) --> grow
  return r
end

-- Tail calls: with few values and with many, and where variables are closed.
local function one(n)
  return leaf(n) --> leaf
end

local function many(n)
  local a, b, c, d, e, f, g, h = 1, 2, 3, 4, 5, 6, 7, 8
  return leaf(h, g, f, e, d, c, b, a, n) --> leaf
end

local function closed(n)
  local kept = n
  local function keep()
    return kept
  end
  return leaf(kept, keep) --> leaf
end

local function down(n)
  if n == 0 then
    return leaf(n) --> leaf
  end
  return down(n - 1) --> down
end

local function tails()
  local x = one(1) --> one leaf
  x = many(1) --> many leaf
  x = closed(1) --> closed leaf
  x = down(3) --> down leaf
  return x
end

local function round()
  tails() --> tails
  deep(60) --> deep
  grow(30) --> grow
end

-- Each coroutine has a stack of its own that has to grow.
local function anew()
  local co = coroutine.wrap(round)
  co() --> round
end

collectgarbage("stop")
step(true)
anew() --> anew
step(false)
