--- uu from inside of Lua: stacks of Lua and native functions, crash reports, recordings, labels.
--
--     local uunwind = require("uunwind")
--     print(uunwind.stack())
--     uunwind.report_crashes("/tmp/crash-%p.txt")
--     local recording = uunwind.record("profile.html"); work(); recording:stop()
--     uunwind.label({ request = "42" }, handle, request)
--
-- It is libuunwind.so.0 as uu.h declares it: by LuaJIT's ffi; in PUC Lua 5.1 to 5.5, as for recordings in all of them,
-- by libuunwind-for-lua.so, which lies in the folder uu beside it. docs/lua.md describes each function.

local is_jit, ffi = pcall(require, "ffi")
if is_jit and (ffi.os ~= "Linux" or ffi.arch ~= "x64") then
   error("uunwind works on Linux on x86-64; this is " .. ffi.os .. " on " .. ffi.arch, 2)
end

local ABI = 1
local DOUBT_SETUP_DUE = 2
local CRASH_JSON, CRASH_ONE_THREAD = 1, 4
local NOT_RECORDED = -107
local COMPLETE = { [1] = true, [2] = true, [4] = true }

local uunwind = {}
local own = debug.getinfo(1, "S").source:gsub("^@", "")
-- The tree that this file is a part of.
local tree = own:match("^(.*)/share/lua/5%.%d/uunwind%.lua$")

local core

-- libuunwind-for-lua.so: beside the variable's library, in the tree, or where package.cpath says. `level`: of the caller
-- that an error is for.
local function open_core(level)
   if core then
      return core
   end
   local library = os.getenv("UUNWIND_LIBRARY")
   local folders = library and { library:match("^(.*)/[^/]*$") or "." } or tree and { tree .. "/lib", tree .. "/lib64" }
   local why
   for _, folder in ipairs(folders or {}) do
      local opens, problem = package.loadlib(folder .. "/uu/libuunwind-for-lua.so", "luaopen_uunwind_core")
      if opens then
         core = opens()
         return core
      end
      why = why or problem
   end
   local found, other = pcall(require, "uunwind.core")
   if not found then
      error("there is no libuunwind-for-lua.so: " .. (why or other) .. ". Set UUNWIND_LIBRARY to the path of the "
         .. "libuunwind.so.0 that has it in the folder uu beside it", level + 1)
   end
   core = other
   return core
end

-- What differs between the two ways to the library: `open(level)`, which returns its functions; `problem(code)`; and
-- `walk(library)`, which returns what libuunwind-for-lua.so does.
local way = {}

if is_jit then
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

   local SEMANTIC, WINDOW, OMITTED = 2, 3, 4
   local INTERPRETER = 62
   local CAPACITY = 8448
   local INLINED = 1

   function way.problem(code)
      return ffi.string(ffi.C.strerror(-code))
   end

   -- The variable's, that of the tree, the system's or what the process has already.
   function way.open(level)
      local why
      local places = { os.getenv("UUNWIND_LIBRARY") }
      if tree then
         places[#places + 1] = tree .. "/lib/libuunwind.so.0"
      end
      places[#places + 1] = "libuunwind.so.0"
      for _, place in ipairs(places) do
         local done, result = pcall(ffi.load, place)
         if done then
            return result
         end
         why = why or result
      end
      error("there is no libuunwind.so.0: " .. tostring(why) .. ". Set UUNWIND_LIBRARY to its path", level + 1)
   end

   local function text(pointer)
      local result = ffi.string(pointer)
      return result ~= "" and result or nil
   end

   local function frame(symbol, word)
      local is_semantic = symbol.kind == SEMANTIC
      return {
         name = ffi.string(symbol["function"]),
         file = text(symbol.file),
         line = symbol.line ~= 0 and symbol.line or nil,
         language = is_semantic and ffi.string(symbol.language) or symbol.kind == WINDOW and "jit" or "native",
         module = text(symbol.object),
         address = tonumber(symbol.address),
         inlined = bit.band(symbol.flags, INLINED) ~= 0,
         omitted = symbol.kind == OMITTED and tonumber(word % 2 ^ 32) or nil,
         semantic = is_semantic,
         interpreter = bit.band(tonumber(bit.rshift(word, INTERPRETER)), 1) == 1,
      }
   end

   function way.walk(library)
      local words = ffi.new("uint64_t[?]", CAPACITY)
      local request = ffi.new("struct uu_request")
      request.size, request.frames, request.capacity = ffi.sizeof(request), words, CAPACITY
      local done = library.uu_walk(request)
      if done < 0 then
         return nil, done, "walked"
      end
      local first = ffi.new("const struct uu_symbol *[1]")
      done = library.uu_symbolize(words, request.words, first)
      if done < 0 then
         return nil, done, "named"
      end
      local frames, symbol = {}, first[0]
      while symbol ~= nil do
         frames[#frames + 1] = frame(symbol, words[symbol.frame])
         symbol = symbol.next
      end
      library.uu_symbols_free(first[0])
      return frames, request.stop, request.doubt
   end
   -- Called from a trace, it would be in it; interpreted, its frame is the VM's.
   jit.off(way.walk)
else
   way.open = open_core

   function way.problem(code)
      return core.problem(code)
   end

   function way.walk(library)
      return library.walk()
   end
end

local library

-- The library's functions. The first call opens it.
local function open()
   if library then
      return library
   end
   local opened = way.open(3)
   local has, abi = pcall(function() return opened.uu_abi() end)
   if not has or abi ~= ABI then
      error("libuunwind.so.0 is of another version: it has interface " .. tostring(has and abi or "?")
         .. ", and this module needs " .. ABI, 3)
   end
   library = opened
   return opened
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

local is_set_up = false

local function set_up(of)
   local done = of.uu_setup()
   if done < 0 then
      error("stacks cannot be set up: " .. way.problem(done)
         .. ". uu/libuunwind-setup.so belongs beside libuunwind.so.0", 4)
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
   local frames, stop, doubt = way.walk(of)
   if frames and doubt % (2 * DOUBT_SETUP_DUE) >= DOUBT_SETUP_DUE then
      set_up(of)
      frames, stop, doubt = way.walk(of)
   end
   if not frames then
      error(("the stack cannot be %s: %s"):format(doubt, way.problem(stop)), 2)
   end
   local stack = setmetatable({ stop = stop, complete = COMPLETE[stop] and doubt == 0 or false }, Stack)
   local is_own = true
   for _, frame in ipairs(frames) do
      -- What stands before the caller: this function, and what it called.
      if is_own and frame.semantic and frame.file ~= own then
         is_own = false
      end
      local wanted = frame.semantic or frame.omitted or native == "show" or native == "hide" and not frame.interpreter
      if wanted and not is_own then
         frame.semantic, frame.interpreter = nil, nil
         stack[#stack + 1] = frame
      end
   end
   return stack
end
if is_jit then
   jit.off(uunwind.stack)
end

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
      error("crashes cannot be reported to " .. tostring(to) .. ": " .. way.problem(done), 2)
   end
end

local Recording = {}
Recording.__index = Recording

-- What uu said of an error.
local function reason(said)
   return ("\n" .. said):match("\nuu: error: (.*)") or said
end

-- The command: beside the variable's library, in the tree, or on PATH.
local function command()
   local library = os.getenv("UUNWIND_LIBRARY")
   local folders = { library and (library:match("^(.*)/[^/]*$") or ".") .. "/..", tree }
   for index = 1, 2 do
      local path = folders[index] and folders[index] .. "/bin/uu"
      local file = path and io.open(path, "rb")
      if file then
         file:close()
         return path
      end
   end
   return "uu"
end

local MODES, NATIVE = { cpu = true, wall = true }, { hide = true, leaf = true, show = true }

local function one_of(set, value, what, words, level)
   if not set[value] then
      error(("%s=%s: give %s"):format(what, tostring(value), words), level + 1)
   end
   return value
end

--- Records this process from now on, all of its threads, until `stop()` of what it returns is called. `path`: where the
-- result goes; its extension says what it is (.uu, .html, .svg, .pb.gz); nothing: uu-PROGRAM-PID.uu. `options`: rate
-- (samples a second of CPU time, 99), mode ("cpu", or "wall": waiting, too), native ("hide", "leaf", "show"), format,
-- children, keep (false: no .uu beside another format), and in its array whatever else `uu record -p` takes.
function uunwind.record(path, options)
   options = options or {}
   local mode = one_of(MODES, options.mode or "cpu", "mode", '"cpu" or "wall"', 2)
   local native = one_of(NATIVE, options.native or "hide", "native", '"hide", "leaf" or "show"', 2)
   local of = open_core(2)
   local words = { command(), "record", "--start-paused", "--pid", ("%d"):format(of.pid()), "--rate",
      ("%d"):format(options.rate or 99), "--mode", mode, "--native-frames", native }
   local function add(...)
      for _, word in ipairs({ ... }) do
         words[#words + 1] = word
      end
   end
   if path then
      add("--output", path)
   end
   if options.format then
      add("--format", options.format)
   end
   if options.children then
      add("--subprocesses")
   end
   local is_recording = not path or options.format == "uu" or not options.format and path:find("%.uu$")
   if options.keep == false and not is_recording then
      add("--no-keep")
   end
   for _, word in ipairs(options) do
      add(tostring(word))
   end
   local pid, process, said = of.begin((unpack or table.unpack)(words))
   if not pid then
      error("this process cannot be recorded: " .. reason(process), 2)
   end
   return setmetatable({ path = path, pid = pid, process = process, said = said }, Recording)
end

--- Ends the recording, and waits until the result is written. Returns what `uu` says: the summary.
function Recording:stop()
   local pid = self.pid
   if not pid then
      return self.summary
   end
   self.pid = nil
   local code, said = open_core(2).finish(pid, self.process, self.said)
   self.summary = said
   if code and code ~= 0 then
      error("the recording has failed: " .. reason(said), 2)
   end
   return said
end

local current = {}

local function apply(of, labels, before)
   for name, given in pairs(labels) do
      local key, value = tostring(name), given ~= false and tostring(given) or nil
      local done = of.uu_label_set(key, value)
      if done == 0 then
         before[#before + 1] = { key, current[key] }
         current[key] = value
      elseif done == NOT_RECORDED then
         return
      else
         io.stderr:write("uunwind: the label ", key, " was left out: ", way.problem(done), "\n")
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
