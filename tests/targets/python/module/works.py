"""The module uunwind inside of a program: its stacks against those of the interpreter, and what it says where it
cannot work. Argument: the library of bindings.c."""

import asyncio
import ctypes
import faulthandler
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import uunwind

BINDINGS = ctypes.CDLL(sys.argv.pop(1))
BACK = ctypes.CFUNCTYPE(None)


def pair():
    """The stack of the caller by the module, and by the interpreter."""
    theirs, frame = [], sys._getframe(1)
    got = uunwind.stack(native="none", skip=1)
    while frame:
        code = frame.f_code
        theirs.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return [(frame.function, frame.file, frame.line) for frame in got], theirs


class Stacks(unittest.TestCase):
    def same(self, pair):
        self.assertEqual(*pair)

    def test_functions_files_and_lines_are_those_of_the_interpreter(self):
        def generates():
            yield pair()

        class Called:
            def __call__(self):
                return pair()

        def recurses(depth):
            return recurses(depth - 1) if depth else pair()

        async def awaits():
            return pair()

        self.same(pair())
        self.same(next(generates()))
        self.same((lambda: pair())())
        self.same(Called()())
        self.same(recurses(50))
        self.same([pair() for _ in (0,)][0])
        self.same(asyncio.run(awaits()))
        kept = []
        sorted([2, 1], key=lambda item: kept.append(pair()) or item)
        self.same(kept[0])
        exec("kept.append(pair())", globals(), {"kept": kept})
        self.same(kept[-1])

    def test_native_functions_stand_where_they_were_called(self):
        kept = {}

        def back():
            for native in ("hide", "show", "none"):
                kept[native] = uunwind.stack(native=native)

        def calls():
            BINDINGS.outer(BACK(back))

        calls()
        last = lambda stack: [frame.function.rpartition(".")[2] for frame in stack]
        self.assertEqual(last(kept["hide"])[:3], ["back", "outer", "calls"])
        self.assertEqual(last(kept["none"])[:2], ["back", "calls"])
        shown = last(kept["show"])
        self.assertEqual([name for name in shown if name in ("back", "outer", "calls")], ["back", "outer", "calls"])
        self.assertGreater(len(shown), len(kept["hide"]))
        outer = kept["hide"][1]
        self.assertEqual(outer.language, "native")
        self.assertEqual(os.path.basename(outer.module), "libbindings.so")
        self.assertEqual(os.path.basename(outer.file), "bindings.c")
        start = ctypes.cast(BINDINGS.outer, ctypes.c_void_p).value
        self.assertTrue(start < outer.address < start + 256)
        self.assertEqual(kept["hide"][0].language, "python")
        self.assertIsNone(kept["hide"][0].module)
        for stack in kept.values():
            self.assertTrue(stack.complete, stack.reason)
        text = str(kept["hide"])
        self.assertIn('File "%s", line ' % __file__, text)
        self.assertIn("outer (", text)

    def test_names_that_are_kept_are_the_same(self):
        first, second = [uunwind.stack(native="show") for _ in range(2)]
        # Within the innermost functions, the second call is another one.
        outer = [[(f.function, f.file, f.module, f.address) for f in stack][-8:] for stack in (first, second)]
        self.assertEqual(outer[0], outer[1])

    def test_objects_that_are_loaded_later_are_there(self):
        copy = os.path.join(tempfile.mkdtemp(), "liblater.so")
        with open(BINDINGS._name, "rb") as file, open(copy, "wb") as to:
            to.write(file.read())
        kept = []
        ctypes.CDLL(copy).outer(BACK(lambda: kept.append(uunwind.stack())))
        self.assertEqual([os.path.basename(f.module) for f in kept[0] if f.function == "outer"], ["liblater.so"])

    def test_wrong_arguments(self):
        with self.assertRaisesRegex(ValueError, "native='all': give one of 'hide', 'show', 'none'"):
            uunwind.stack(native="all")

    def test_all_threads(self):
        event, ready = threading.Event(), threading.Event()

        def waits():
            ready.set()
            event.wait()

        thread = threading.Thread(target=waits, name="the one that waits")
        thread.start()
        ready.wait()
        try:
            found = uunwind.threads()
            with tempfile.TemporaryFile("w+") as file:
                uunwind.dump_threads(file)
                file.seek(0)
                text = file.read()
        finally:
            event.set()
            thread.join()
        self.assertEqual([t.current for t in found], [True] + [False] * (len(found) - 1))
        self.assertEqual(found[0].id, threading.get_native_id())
        self.assertEqual(found[0].stack[0].function.rpartition(".")[2], "test_all_threads")
        (other,) = [t for t in found if t.id == thread.native_id]
        self.assertEqual(other.name, "the one that waits")
        self.assertIn("waits", [f.function.rpartition(".")[2] for f in other.stack if f.language == "python"])
        self.assertTrue(other.stack.complete, other.stack.reason)
        self.assertIn("Thread %d [the one that waits] (most recent call first):" % thread.native_id, text)
        self.assertTrue(text.startswith("Current thread %d [MainThread] " % found[0].id))

    def test_many_threads_at_once(self):
        wrong = []

        def works():
            for _ in range(20):
                got, theirs = pair()
                if got != theirs:
                    wrong.append((got, theirs))

        threads = [threading.Thread(target=works) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_the_child_of_a_fork(self):
        uunwind.stack()
        child = os.fork()
        if not child:
            got, theirs = pair()
            os._exit(0 if got == theirs and uunwind.stack()[0].language == "python" else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


def run(code, **environment):
    """Runs a program; its exit code and standard error."""
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                          env={**os.environ, **environment})
    return done.returncode, done.stderr.decode() + done.stdout.decode()


CRASHES = """
import ctypes, os, sys, threading, uunwind
%s
library = ctypes.CDLL(%r)
ready = threading.Event()
def other():
    ready.set()
    threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
ready.wait()
def falls():
    ctypes.string_at(8)
def calls():
    library.outer(ctypes.CFUNCTYPE(None)(falls))
calls()
"""


class Crashes(unittest.TestCase):
    def of(self, before):
        code, text = run(CRASHES % (before, BINDINGS._name))
        self.assertEqual(code, -11, text)
        return text

    def is_whole(self, text):
        self.assertIn("uu crash report: SIGSEGV (11), ", text)
        crashed, _, others = text.partition("crashed: ")[2].partition("\nthread ")
        places = [crashed.find(name) for name in ("python falls (", " outer+", "python calls (")]
        self.assertTrue(-1 not in places and sorted(places) == places, text)
        return others

    def test_all_threads_are_reported(self):
        self.assertIn("python other (", self.is_whole(self.of("uunwind.report_crashes()")))

    def test_one_thread(self):
        text = self.of("uunwind.report_crashes(all_threads=False)")
        self.assertNotIn("python other (", self.is_whole(text))

    def test_beside_faulthandler(self):
        for before in ("import faulthandler; faulthandler.enable(); uunwind.report_crashes()",
                       "import faulthandler; uunwind.report_crashes(); faulthandler.enable()"):
            text = self.of(before)
            self.is_whole(text)
            self.assertIn("Fatal Python error: Segmentation fault", text)

    def test_a_path_and_json(self):
        place = tempfile.mkdtemp()
        self.of("uunwind.report_crashes(%r, json=True)" % os.path.join(place, "crash-%p.json"))
        (name,) = os.listdir(place)
        with open(os.path.join(place, name)) as file:
            self.assertIn('"type":"crash"', file.readline().replace(" ", ""))

    def test_none_takes_it_back(self):
        self.assertEqual(self.of("uunwind.report_crashes(); uunwind.report_crashes(None)"), "")

    def test_what_cannot_be_written_to(self):
        with self.assertRaisesRegex(uunwind.Error, "crashes cannot be reported to .*: Bad file descriptor"):
            uunwind.report_crashes(os.open(os.devnull, os.O_RDONLY))
        self.assertFalse(faulthandler.is_enabled())


class Labels(unittest.TestCase):
    def test_nothing_happens_where_nothing_records(self):
        with uunwind.label(request=1), uunwind.label({"http.route": "/"}, request=None):
            pass

        @uunwind.label(a="b")
        def plain(x, *, y):
            return x + y

        @uunwind.label(a="b")
        async def awaits(x):
            await asyncio.sleep(0)
            return x

        async def fails():
            @uunwind.label(a="b")
            async def inner():
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    raise KeyError("cancelled")

            task = asyncio.ensure_future(inner())
            await asyncio.sleep(0)
            task.cancel()
            await task

        self.assertEqual((plain(1, y=2), plain.__name__, asyncio.run(awaits(3))), (3, "plain", 3))
        with self.assertRaises(KeyError):
            asyncio.run(fails())

    def test_what_is_left_out_is_said(self):
        for labels, why in (({"k": "v" * 256}, "its value has 256 bytes, of 255 at most"),
                            ({"k" * 64: "v"}, "its key has 64 bytes, of 63 at most"),
                            ({"": "v"}, "it has no key"),
                            ({"k": "\udc80"}, "its value is not UTF-8")):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                with uunwind.label(labels):
                    pass
            self.assertEqual([w.category for w in said], [uunwind.LabelWarning])
            self.assertIn(why, str(said[0].message))
            self.assertEqual(said[0].filename, __file__)

    def test_generator_functions(self):
        with self.assertRaisesRegex(TypeError, "cannot decorate a generator function"):
            @uunwind.label(a="b")
            def generates():
                yield


class Refusals(unittest.TestCase):
    def refused(self, code, *texts, **environment):
        got, text = run("import sys, uunwind\n%suunwind.stack()" % code, **environment)
        self.assertEqual(got, 1, text)
        self.assertIn("LibraryError: ", text)
        for part in texts:
            self.assertIn(part, text)

    def test_no_library(self):
        self.refused("", "/no/such.so cannot be opened: /no/such.so: ", "Install uunwind anew",
                     UUNWIND_LIBRARY="/no/such.so")
        self.refused("uunwind.TREE = '/nowhere'\n", "there is no libuunwind.so.0: not /nowhere/lib/libuunwind.so.0",
                     LD_LIBRARY_PATH="")
        code, text = run("import uunwind\nwith uunwind.label(a=1): print('fine')", UUNWIND_LIBRARY="/no/such.so")
        self.assertEqual((code, text), (0, "fine\n"))

    def test_another_version(self):
        folder = os.path.dirname(BINDINGS._name)
        self.refused("", "libother.so is of another version: it has interface 7, and this package needs 1",
                     UUNWIND_LIBRARY=os.path.join(folder, "libother.so"))
        self.refused("", "libolder.so is older than this package: it has no uu_walk",
                     UUNWIND_LIBRARY=os.path.join(folder, "libolder.so"))

    def test_another_system(self):
        self.refused("sys.platform = 'darwin'\n", "uunwind works on Linux of 64 bits", "this is darwin on x86_64")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
