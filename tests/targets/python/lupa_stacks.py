"""Lua in Python in Lua: Python functions and Lua functions that call each other, in one process, with two Lua versions.

Prints for each sample, in order, the semantic frames that it should have, outermost first; "any" if that is not told."""

import ctypes
import importlib
import os
import time

cap = ctypes.PyDLL(os.environ["UU_TEST_CAP"]).cap


def run(name, other):
    def inner():
        cap()

    def between():
        second.eval("function(f) local r = f() return r end")(inner)

    first = importlib.import_module("lupa." + name).LuaRuntime(unpack_returned_tuples=True)
    second = importlib.import_module("lupa." + other).LuaRuntime(unpack_returned_tuples=True)
    outer = first.execute("local function helper(f)\n  local r = f()\n  return r\nend\nreturn function(f)\n  local r = helper(f)\n  return r\nend")
    # The recorder learns of the modules by this one, and needs a moment.
    outer(between)
    print("any", flush=True)
    time.sleep(0.5)
    outer(inner)
    print("py:<module> py:run lua:5 lua:1 py:run.<locals>.inner", flush=True)
    outer(between)
    print("py:<module> py:run lua:5 lua:1 py:run.<locals>.between lua:1 py:run.<locals>.inner", flush=True)
    # Through a coroutine of Lua, and an error that passes through both.
    wrapped = first.execute("return function(f)\n  local co = coroutine.wrap(function()\n    local r = f()\n    return r\n  end)\n  local r = co()\n  return r\nend")
    wrapped(inner)
    print("py:<module> py:run lua:1 lua:2 py:run.<locals>.inner", flush=True)
    for _ in range(3):
        try:
            outer(lambda: 1 / 0)
        except ZeroDivisionError:
            pass
    outer(inner)
    print("py:<module> py:run lua:5 lua:1 py:run.<locals>.inner", flush=True)


for name, other in (("lua51", "lua54"), ("lua52", "lua53"), ("lua53", "lua55"), ("lua54", "lua51"), ("lua55", "lua54"), ("lua54", "lua54")):
    run(name, other)
