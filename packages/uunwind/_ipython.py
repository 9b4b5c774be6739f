"""%uu and %%uu: profiles of a statement or a cell, in IPython and Jupyter. `%load_ext uunwind` loads it."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

import argparse
import html
import importlib
import os
import tempfile
from typing import Any

from uunwind._errors import Error
from uunwind._record import record

# Pixels of the page in a notebook.
HEIGHT = 640


def load(shell: Any) -> None:
    """Adds the magics to this shell."""
    # Untyped, so that this module is checked without IPython.
    magic: Any = importlib.import_module("IPython.core.magic")
    arguments: Any = importlib.import_module("IPython.core.magic_arguments")
    argument = arguments.argument

    @magic.magics_class
    class Uu(magic.Magics):  # type: ignore[misc]
        @arguments.magic_arguments()
        @argument("-r", "--rate", type=int, default=499, help="samples a second of CPU time (1 to 1000)")
        @argument("-w", "--wall", action="store_true", help="show where it waits, too")
        @argument("-n", "--native", choices=("hide", "leaf", "show"), default="hide",
                  help="the interpreter's own functions")
        @argument("-o", "--output", help="keep the profile in this file, such as profile.html or profile.uu")
        @argument("-t", "--text", action="store_true", help="print a summary, also in a notebook")
        @argument("statement", nargs=argparse.REMAINDER, help="what is run, for a line")
        @magic.line_cell_magic
        def uu(self, line: str, cell: str | None = None) -> None:
            """Profiles a statement (%uu) or a cell (%%uu): a flame graph in a notebook, a summary in a terminal."""
            chosen = arguments.parse_argstring(self.uu, line)
            code = " ".join(chosen.statement) if cell is None else cell
            if cell is not None and chosen.statement:
                print("%%%%uu: the cell is run, and not %r: that belongs below the line" % " ".join(chosen.statement))
                return
            self._run(code, chosen)

        def _run(self, code: str, chosen: Any) -> None:
            with tempfile.TemporaryDirectory(prefix="uunwind-") as folder:
                page = os.path.join(folder, "profile.html")
                path = chosen.output or page
                try:
                    running = record(path, rate=chosen.rate, mode="wall" if chosen.wall else "cpu",
                                     native=chosen.native, keep=False).start()
                except Error as error:
                    print("%%uu: %s" % error)
                    return
                try:
                    self.shell.run_cell(code, store_history=False)
                finally:
                    try:
                        running.stop()
                    except Error as error:
                        print("%%uu: %s" % error)
                        return
                if chosen.text or path != page or not hasattr(self.shell, "kernel"):
                    lines = running.summary.splitlines()
                    # Where a page went that is gone by then.
                    print("\n".join(line for line in lines if path != page or not line.startswith("uu: ")))
                else:
                    _show(page)

    shell.register_magics(Uu)


def _show(page: str) -> None:
    shown: Any = importlib.import_module("IPython.display")
    with open(page, encoding="utf-8") as file:
        inside = html.escape(file.read())
    frame = '<div><iframe style="width:100%%;height:%dpx;border:0" srcdoc="%s"></iframe></div>' % (HEIGHT, inside)
    shown.display(shown.HTML(frame))
