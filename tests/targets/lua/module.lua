-- The module uunwind: its stacks against debug.getinfo, and what it says where it cannot work.
local uunwind = require("uunwind")

-- How the interpreter was called.
local program = arg[-1]:match("[^/]*$")

local function equal(got, expected, what)
   if got ~= expected then
      error(("%s: %s instead of %s"):format(what, tostring(got), tostring(expected)), 2)
   end
end

-- Lua's functions, innermost first: file and line, by the interpreter and by the module.
local function pair()
   local theirs, level = {}, 2
   while true do
      local info = debug.getinfo(level, "Sl")
      if not info then
         break
      end
      -- Lua 5.1 has a level for each tail call.
      if info.what ~= "C" and info.what ~= "tail" then
         theirs[#theirs + 1] = info.source:sub(2) .. ":" .. info.currentline
      end
      level = level + 1
   end
   local ours = {}
   local stack = uunwind.stack("none")
   for index, frame in ipairs(stack) do
      -- The first one is this function.
      if index > 1 and frame.language == "lua" and frame.line then
         ours[#ours + 1] = frame.file .. ":" .. frame.line
      end
   end
   assert(stack.complete, stack.stop)
   return table.concat(ours, " "), table.concat(theirs, " ")
end

local function same(what)
   local ours, theirs = pair()
   equal(ours, theirs, what)
   return ours
end

local function recurses(depth)
   if depth > 0 then
      return 1 + recurses(depth - 1)
   end
   same("recursion")
   return 0
end

same("the main chunk")
equal(recurses(20), 20, "the depth")
-- A coroutine has a stack of its own for debug.getinfo; uu goes on with what resumed it, by way of a function of C.
local resumed = coroutine.wrap(function() return (pair()) end)
local place = ("%s:%d"):format(debug.getinfo(1, "S").source:sub(2), debug.getinfo(1, "l").currentline + 1)
local ours = resumed()
assert(select(2, ours:gsub(place:gsub("%p", "%%%0"), "")) == 1 and ours:sub(-#place) == place, ours)
local sorted = {}
table.sort({ 3, 1, 2 }, function(a, b)
   sorted[1] = sorted[1] or same("a callback of C")
   return a < b
end)
assert(sorted[1]:find("module.lua", 1, true))
-- Hot enough for a trace.
for index = 1, 300 do
   if index % 100 == 0 then
      same("a loop")
   end
end

local stack = uunwind.stack()
local names = {}
for _, frame in ipairs(stack) do
   names[frame.name] = frame
end
assert(names["main chunk"] and names["main chunk"].language == "lua", tostring(stack))
assert(stack[#stack].language == "native" and stack[#stack].module:find(program, 1, true), tostring(stack))
assert(stack[#stack].address > 0 and tostring(stack):find("main chunk %(.*module%.lua:%d+%)"), tostring(stack))
assert(#uunwind.stack("none") < #stack and #uunwind.stack("show") >= #stack)

local function fails(text, ...)
   local done, why = pcall(...)
   assert(not done and tostring(why):find(text, 1, true), tostring(why))
end
fails('native=all: give "hide", "show" or "none"', uunwind.stack, "all")
fails("crashes cannot be reported to 99: Bad file descriptor", uunwind.report_crashes, 99)
fails("oh", uunwind.label, { a = 1 }, error, "oh")
local first, second = uunwind.label({ a = 1, b = false }, function(x) return x, 2 end, 1)
equal(first + second, 3, "what the call returns")
equal(uunwind.record_start(), false, "nothing records")
print("fine")

if arg[1] then
   uunwind.report_crashes(arg[1])
   os.execute("kill -SEGV $PPID")
end
