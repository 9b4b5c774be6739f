-- Two VMs in one process, and coroutines of both. The script writes down what is expected: no VM sees the other's.
local oracle = assert(io.open(os.getenv "UU_TEST_ORACLE", "a"))
local file = debug.getinfo(1, "S").source
if os.getenv "UU_TEST_JIT" == "off" then jit.off() end

local function expect(frames)
  local out = {}
  for i, f in ipairs(frames) do
    out[i] = ('["%s",%d,%d,"%s","%s"]'):format(f[1], f[2], f[3], f[4] or "", f[4] and "local" or "")
  end
  oracle:write('{"pid":0,"tid":0,"shape":"","frames":[', table.concat(out, ","), "]}\n")
  oracle:flush()
end

-- The other VM runs this. `plain` takes a sample; `back` calls a function of this VM.
local inner = [[
local function f(n)
  plain()
  return n
end
local co = coroutine.wrap(function()
  f(1)
  back()
  f(2)
end)
co()
f(3)
]]
local function called_back()
  plain()
  local co = coroutine.wrap(function()
    plain()
  end)
  co()
end
local function outer()
  other(inner, called_back)
end
-- Lines of this file, and of the code above from 1 on.
-- Functions that the other VM calls have no name, since C calls them.
local this = { file, 37, 36, "outer" }
local chunk = { file, 54, 0 }
local f, co, main = { "=other", 2, 1, "f" }, { "=other", 6, 5 }, { "=other", 10, 0 }
expect { f, co, main, this, chunk }
local back = { { file, 30, 29 }, { "=other", 7, 5 }, main, this, chunk }
expect(back)
back[1][2] = 34
table.insert(back, 1, { file, 32, 31 })
expect(back)
co[2] = 8
expect { f, co, main, this, chunk }
main[2] = 11
expect { f, main, this, chunk }
outer()
oracle:close()
