"""Generates $UU_TEST_PIECES pieces of code, one after the other, and runs each once: it takes a sample of itself.
Nothing refers to it afterwards, so that what is generated next lies where it lay. The pieces come in the kinds below.
All that names number i follows from i:

  kind   the same for a while, so that pieces of the same sizes follow each other
  line   the one that runs: (i modulo 97) + 1 lines into the piece
  name   with the number in it, or one that all pieces of the kind share; the same for the file
"""

import ctypes
import gc
import marshal
import os
import sys
import types

cap = ctypes.PyDLL(os.environ["UU_TEST_CAP"]).cap_with_room
ENVIRONMENT = {"cap": cap, "__name__": "generated", "__builtins__": __builtins__}
FIRST = int(os.environ["UU_TEST_FIRST"])


def function(i, lines):
    names = dict(ENVIRONMENT)
    exec(compile(f"def f{i:07}():\n{lines}  cap()\n", f"/gen/{i:07}.py", "exec"), names)
    names.pop(f"f{i:07}")()


def method(i, lines):
    """A class: only the collector of cycles frees it."""
    names = dict(ENVIRONMENT)
    exec(f"class C{i:07}:\n  def run(self):\n{lines}    cap()\n", names)
    names.pop(f"C{i:07}")().run()
    names.clear()
    gc.collect(0)


def expression(i, lines):
    eval(f"(\n{lines}cap())", ENVIRONMENT)


def anonymous(i, lines):
    eval(compile(f"(lambda:\n{lines}cap())", f"/gen/{i:07}.py", "eval"), ENVIRONMENT)()


def module(i, lines):
    exec(compile(f"if True:\n{lines}  cap()\n", "/gen/same.py", "exec"), ENVIRONMENT)


def loaded(i, lines):
    """As from a .pyc file: nothing in it has been hashed."""
    exec(marshal.loads(marshal.dumps(compile(f"if True:\n{lines}  cap()\n", f"/gen/{i:07}.py", "exec"))), ENVIRONMENT)


def replaced(i, lines):
    """Code whose parts are as another's, but for the line table."""
    code = compile(f"if True:\n{lines}  cap()\n", "/gen/same.py", "exec")
    table = marshal.loads(marshal.dumps(code.co_linetable))
    exec(TEMPLATE.replace(co_linetable=table, co_code=code.co_code, co_consts=code.co_consts), ENVIRONMENT)


def wide(i, lines):
    """Names of two bytes a character, and a function with a large line table."""
    names = dict(ENVIRONMENT)
    rest = "  if cap: a = [cap, cap]\n" * 60
    exec(compile(f"def \u03b1{i:07}():\n{lines}  cap()\n{rest}", f"/gen/\u03b2{i:07}.py", "exec"), names)
    names.pop(f"\u03b1{i:07}")()


KINDS = [function, method, expression, anonymous, module, loaded, replaced, wide]
TEMPLATE = compile("if True:\n  cap()\n", "/gen/same.py", "exec")
LINES = ["\n" * i for i in range(97)]


def main():
    gc.disable()
    gc.freeze()
    kinds, lines = KINDS, LINES
    for i in range(FIRST, FIRST + int(os.environ["UU_TEST_PIECES"])):
        kinds[i // 100 % len(kinds)](i, lines[i % 97])


main()
