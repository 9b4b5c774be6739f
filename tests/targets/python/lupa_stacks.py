"""Lua in Python in Lua: Python functions and Lua functions that call each other, in one process, with two Lua versions.

Prints for each sample, in order, the semantic frames that it should have, outermost first; "any" if that is not
determined."""

import ctypes
import importlib
import os
import struct
import time

cap = ctypes.PyDLL(os.environ["UU_TEST_CAP"]).cap


def known():
    """Number of objects with a Lua in them that the recorder has published: entries of the Lua plugin in the facts,
    which are mapped here. $UU_TEST_FACTS: where the entries begin, how many there are, the bytes of one, and where in
    one the plugin's name is."""
    first, entries, size, name = map(int, os.environ["UU_TEST_FACTS"].split())
    with open("/proc/self/maps") as maps:
        start = next(int(line.split("-")[0], 16) for line in maps if "memfd:uu-facts" in line)
    table = ctypes.string_at(start + first, entries * size)
    return sum(
        struct.unpack_from("16s", table, at + name)[0].rstrip(b"\0") == b"lua" for at in range(0, len(table), size)
    )


def wait_until_known(objects):
    end = time.monotonic() + 60
    while known() < objects:
        if time.monotonic() > end:
            raise SystemExit(f"after a minute the recorder knows {known()} of {objects} objects with a Lua in them")
        time.sleep(0.01)


imported = set()


def run(name, other):
    def inner():
        cap()

    def between():
        second.eval("function(f) local r = f() return r end")(inner)

    first = importlib.import_module("lupa." + name).LuaRuntime(unpack_returned_tuples=True)
    second = importlib.import_module("lupa." + other).LuaRuntime(unpack_returned_tuples=True)
    outer = first.execute(
        "local function helper(f)\n  local r = f()\n  return r\nend\n"
        "return function(f)\n  local r = helper(f)\n  return r\nend"
    )
    # The recorder learns of the modules by this one.
    outer(between)
    print("any", flush=True)
    imported.update((name, other))
    wait_until_known(len(imported))
    outer(inner)
    print("py:<module> py:run lua:5 lua:1 py:run.<locals>.inner", flush=True)
    outer(between)
    print("py:<module> py:run lua:5 lua:1 py:run.<locals>.between lua:1 py:run.<locals>.inner", flush=True)
    # Through a coroutine of Lua, and an error that passes through both.
    wrapped = first.execute(
        "return function(f)\n  local co = coroutine.wrap(function()\n    local r = f()\n    return r\n  end)\n"
        "  local r = co()\n  return r\nend"
    )
    wrapped(inner)
    print("py:<module> py:run lua:1 lua:2 py:run.<locals>.inner", flush=True)
    for _ in range(3):
        try:
            outer(lambda: 1 / 0)
        except ZeroDivisionError:
            pass
    outer(inner)
    print("py:<module> py:run lua:5 lua:1 py:run.<locals>.inner", flush=True)


for name, other in (
    ("lua51", "lua54"),
    ("lua52", "lua53"),
    ("lua53", "lua55"),
    ("lua54", "lua51"),
    ("lua55", "lua54"),
    ("lua54", "lua54"),
):
    run(name, other)
