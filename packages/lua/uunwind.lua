--- uu from inside of LuaJIT: stacks of Lua and native functions, crash reports, labels.
--
--     local uunwind = require("uunwind")
--     print(uunwind.stack())
--     uunwind.report_crashes("/tmp/crash-%p.txt")
--     uunwind.label({ request = "42" }, handle, request)
--
-- It is libuunwind.so.0 by LuaJIT's ffi, as uu.h declares it: nothing is compiled. docs/lua.md describes each function.

local found, ffi = pcall(require, "ffi")
if not found then
   error("uunwind needs LuaJIT, whose ffi calls libuunwind.so.0; this is " .. tostring(_VERSION), 2)
end
if ffi.os ~= "Linux" or ffi.arch ~= "x64" then
   error("uunwind works on Linux on x86-64; this is " .. ffi.os .. " on " .. ffi.arch, 2)
end

ffi.cdef [[
struct uu_request {
   uint32_t size, flags;
   const void *ucontext;
   uint64_t *frames;
   size_t capacity;
   uint32_t skip, reserved;
   int (*frame)(void *, const uint64_t *, size_t);
   void *user;
   size_t words;
   uint32_t count;
   uint16_t stop, doubt;
   uint64_t *cfas;
};
struct uu_symbol {
   const struct uu_symbol *next;
   const char *function, *file, *object, *language, *problem;
   uint64_t address, start;
   uint32_t line, frame, kind, flags;
};
uint32_t uu_abi(void);
int uu_setup(void);
int uu_walk(struct uu_request *);
int uu_symbolize(const uint64_t *, size_t, const struct uu_symbol **);
void uu_symbols_free(const struct uu_symbol *);
int uu_report_crashes(int, uint32_t);
int uu_report_crashes_to(const char *, uint32_t);
int uu_label_set(const char *, const char *);
int uu_record_start(void);
int uu_record_stop(void);
char *strerror(int);
]]

local ABI = 1
local SEMANTIC, WINDOW, OMITTED = 2, 3, 4
local INTERPRETER = 62
local CAPACITY = 8448
local DOUBT_SETUP_DUE = 2
local INLINED = 1
local CRASH_JSON, CRASH_ONE_THREAD = 1, 4
local NOT_RECORDED = -107
local COMPLETE = { [1] = true, [2] = true, [4] = true }

local uunwind = {}
local library

local function problem(code)
   return ffi.string(ffi.C.strerror(-code))
end

-- Where the library is: what the process has already, the variable's, that of the tree this file is part of, the
-- system's.
local function places()
   local list = { os.getenv("UUNWIND_LIBRARY") }
   local folder = debug.getinfo(1, "S").source:match("^@(.*)/share/lua/5%.1/uunwind%.lua$")
   if folder then
      list[#list + 1] = folder .. "/lib/libuunwind.so.0"
   end
   list[#list + 1] = "libuunwind.so.0"
   return list
end

-- The library, which the first call opens.
local function open()
   if library then
      return library
   end
   local opened, why
   for _, place in ipairs(places()) do
      local done, result = pcall(ffi.load, place)
      if done then
         opened = result
         break
      end
      why = why or result
   end
   if not opened then
      error("there is no libuunwind.so.0: " .. tostring(why) .. ". Set UUNWIND_LIBRARY to its path", 3)
   end
   local has, abi = pcall(function() return opened.uu_abi() end)
   if not has or abi ~= ABI then
      error("libuunwind.so.0 is of another version: it has interface " .. tostring(has and abi or "?")
         .. ", and this module needs " .. ABI, 3)
   end
   library = opened
   return opened
end

local function kind(word)
   return tonumber(bit.band(bit.rshift(word, 56), 15))
end

local Stack = {}
Stack.__index = Stack

function Stack.__tostring(stack)
   local lines = {}
   for index, frame in ipairs(stack) do
      lines[index] = "  " .. (frame.omitted and "(" .. frame.omitted .. " more)" or frame.name ~= "" and frame.name
         or ("0x%x"):format(frame.address))
         .. (frame.file and (" (%s:%s)"):format(frame.file, frame.line or "?") or "")
         .. (frame.module and " in " .. frame.module:match("[^/]*$") or "")
   end
   if not stack.complete then
      lines[#lines + 1] = ("  (what called this is not shown: stop reason %d)"):format(stack.stop)
   end
   return table.concat(lines, "\n")
end

local function text(pointer)
   local result = ffi.string(pointer)
   return result ~= "" and result or nil
end

local is_set_up = false

local function set_up(of)
   local done = of.uu_setup()
   if done < 0 then
      error("stacks cannot be set up: " .. problem(done) .. ". uu/libuunwind-setup.so belongs beside libuunwind.so.0", 4)
   end
   is_set_up = true
end

--- The stack of the caller, leaf first: an array of frames with the fields name, file, line, language ("lua", "python",
-- ..., "native"), module and address (native frames), inlined. Its fields complete and stop say how it ended.
-- `native`: "hide" (the default) leaves out the interpreter's own native functions; "show"; "none": no native ones.
function uunwind.stack(native)
   native = native or "hide"
   if native ~= "hide" and native ~= "show" and native ~= "none" then
      error("native=" .. tostring(native) .. ': give "hide", "show" or "none"', 2)
   end
   local of = open()
   if not is_set_up then
      set_up(of)
   end
   local words = ffi.new("uint64_t[?]", CAPACITY)
   local request
   for attempt = 1, 2 do
      request = ffi.new("struct uu_request")
      request.size, request.frames, request.capacity = ffi.sizeof(request), words, CAPACITY
      local done = of.uu_walk(request)
      if done < 0 then
         error("the stack cannot be walked: " .. problem(done), 2)
      end
      if attempt == 2 or bit.band(request.doubt, DOUBT_SETUP_DUE) == 0 then
         break
      end
      set_up(of)
   end
   local first = ffi.new("const struct uu_symbol *[1]")
   local count = of.uu_symbolize(words, request.words, first)
   if count < 0 then
      error("functions cannot be named: " .. problem(count), 2)
   end
   local stack = setmetatable({ stop = request.stop, complete = COMPLETE[request.stop] and request.doubt == 0 or false },
      Stack)
   local own = debug.getinfo(1, "S").source:gsub("^@", "")
   local is_own = true
   local symbol = first[0]
   while symbol ~= nil do
      local is_semantic = symbol.kind == SEMANTIC
      local file = text(symbol.file)
      -- What stands before the caller: this function, and what it called.
      if is_own and is_semantic and file ~= own then
         is_own = false
      end
      local word = words[symbol.frame]
      local interpreter = bit.band(tonumber(bit.rshift(word, INTERPRETER)), 1) == 1
      local wanted = is_semantic or symbol.kind == OMITTED or native == "show" or native == "hide" and not interpreter
      if wanted and not is_own then
         local name = ffi.string(symbol["function"])
         stack[#stack + 1] = {
            name = name,
            file = file,
            line = symbol.line ~= 0 and symbol.line or nil,
            language = is_semantic and ffi.string(symbol.language) or symbol.kind == WINDOW and "jit" or "native",
            module = text(symbol.object),
            address = tonumber(symbol.address),
            inlined = bit.band(symbol.flags, INLINED) ~= 0,
            omitted = symbol.kind == OMITTED and tonumber(word % 2 ^ 32) or nil,
         }
      end
      symbol = symbol.next
   end
   of.uu_symbols_free(first[0])
   return stack
end
-- Called from a trace, it would be in it; interpreted, its frame is the VM's.
jit.off(uunwind.stack)

--- From now on, a crash is reported to `to`: a path, in which %p becomes the process id, or a descriptor (2 if it is not
-- given). false: no reports any more. `options`: one_thread, json.
function uunwind.report_crashes(to, options)
   local of = open()
   options = options or {}
   local flags = (options.json and CRASH_JSON or 0) + (options.one_thread and CRASH_ONE_THREAD or 0)
   local done
   if to == false then
      done = of.uu_report_crashes(-1, 0)
   else
      if not is_set_up then
         set_up(of)
      end
      if type(to) == "string" then
         done = of.uu_report_crashes_to(to, flags)
      else
         done = of.uu_report_crashes(to or 2, flags)
      end
   end
   if done < 0 then
      error("crashes cannot be reported to " .. tostring(to) .. ": " .. problem(done), 2)
   end
end

local current = {}

local function apply(of, labels, before)
   for key, value in pairs(labels) do
      key, value = tostring(key), value ~= false and tostring(value) or nil
      local done = of.uu_label_set(key, value)
      if done == 0 then
         before[#before + 1] = { key, current[key] }
         current[key] = value
      elseif done == NOT_RECORDED then
         return
      else
         io.stderr:write("uunwind: the label ", key, " was left out: ", problem(done), "\n")
      end
   end
end

local function finish(of, before, done, ...)
   for index = #before, 1, -1 do
      local key, value = before[index][1], before[index][2]
      of.uu_label_set(key, value)
      current[key] = value
   end
   if not done then
      error((...), 0)
   end
   return ...
end

--- Calls `call(...)`, and gives samples of the thread these labels meanwhile; false takes one away. Returns what it
-- returns. The call must not yield to a coroutine outside of it. Where nothing records the process, it just calls.
function uunwind.label(labels, call, ...)
   local opened, of = pcall(open)
   if not opened then
      return call(...)
   end
   local before = {}
   apply(of, labels, before)
   return finish(of, before, pcall(call, ...))
end

--- Begins, or ends, what `uu record --start-paused` records of this process. false: nothing records it.
function uunwind.record_start()
   return open().uu_record_start() == 0
end

function uunwind.record_stop()
   return open().uu_record_stop() == 0
end

return uunwind
