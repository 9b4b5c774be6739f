-- Chunks that differ only in a function's name, loaded one after the other: each is garbage when the next one is
-- loaded, which reuses its memory. Some of the names stay alive, so that their strings keep their addresses.
local load = loadstring or load
if not cap then require "cap" end

local names = { "draw_old", "draw_new", "make_one", "make_two", "run_both", "run_none" }
local rounds = 4

-- Calls that give the function its name: NAME.
local templates = {
  "local function NAME(n)\n  BODY\n  return n\nend\nlocal q = NAME(...)\nreturn q",
  "function NAME(n)\n  BODY\n  return n\nend\nlocal q = NAME(...)\nNAME = nil\nreturn q",
  "local t = {}\nfunction t.NAME(n)\n  BODY\n  return n\nend\nlocal q = t.NAME(...)\nreturn q",
  "local t = {}\nfunction t:NAME(n)\n  BODY\n  return n\nend\nlocal q = t:NAME(...)\nreturn q",
  "local function NAME(n)\n  BODY\n  return n\nend\nlocal function call(n)\n  local q = NAME(n)\n  return q\nend\n"
    .. "local q = call(...)\nreturn q",
  -- Two of them, in either order.
  "local function NAME(n)\n  BODY\n  return n\nend\nlocal function other(n)\n  return n\nend\nlocal a, NAME, b = 1, NAME, 2\n"
    .. "local q = NAME(...)\nreturn q",
}

-- All texts and chunk names are made first, so that a chunk that is loaded reuses the memory of the previous one.
local texts, chunks = {}, {}
local function add(text, chunk)
  texts[#texts + 1], chunks[#texts + 1] = text, chunk or text
end
-- Code of another length reuses other memory.
for _, body in ipairs { "cap()", "local r = cap()", "local r, s, t = cap(), n, n", "local r = cap() r = n + n + n + n" } do
  for _, template in ipairs(templates) do
    template = template:gsub("BODY", body)
    -- Names whose strings are alive all the time, and names that no other string equals.
    for i = 1, rounds do
      add((template:gsub("NAME", names[i * 5 % #names + 1])), "=mod")
    end
    for i = 1, rounds do
      add((template:gsub("NAME", ("made_%03d"):format(i * 37 % 1000))), "=mod")
    end
  end
end
-- The same function in files with other names, and in chunks that are named by their first line.
local same = "local function same(n)\n  local r = cap()\n  return n\nend\nlocal q = same(...)\nreturn q"
for i = 1, rounds do
  add(same, ("@/some/folder/that/is/long/enough/to/be/no/short/string/file%03d.lua"):format(i * 37 % 1000))
end
for i = 1, rounds do
  add(("-- %03d\n"):format(i * 37 % 1000) .. same)
end
for i = 1, rounds do
  add(("-- %03d, and further words, so the line is cut: one, two, three, four\n"):format(i * 37 % 1000) .. same)
end

for i = 1, #texts do
  -- The first time, the memory may be that of other objects.
  for _ = 1, 4 do
    load(texts[i], chunks[i])(1)
    collectgarbage()
    collectgarbage()
  end
end
