"""Recordings that a program makes of a part of itself, and the watchdog. Argument: the library of bindings.c."""

import asyncio
import collections
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import uunwind
from uunwind import _record

BINDINGS = ctypes.CDLL(sys.argv.pop(1))
UU = os.path.join(uunwind.TREE, "bin", "uu")


def burn(seconds=0.2):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def of_before():
    burn()


def of_inside():
    burn()


def of_thread():
    # A new thread is sampled once `uu` has found it, which may be late on a busy machine.
    burn(0.8)


def of_after():
    burn()


OF = ("of_before", "of_inside", "of_thread", "of_after")


def functions(path, *options):
    """Which of the functions above are in samples of a recording."""
    text = subprocess.check_output([UU, "report", "-f", "folded", path, *options]).decode()
    return {name for name in OF if name + " (" in text}


def output():
    """A file that each write is appended to."""
    return open(os.path.join(tempfile.mkdtemp(), "output"), "a+")


class Records(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_the_block_and_nothing_else(self):
        of_before()
        begins = threading.Event()

        def waits():
            begins.wait()
            of_thread()

        thread = threading.Thread(target=waits)
        thread.start()
        with uunwind.record(self.path("a.uu"), rate=499) as recording:
            of_inside()
            begins.set()
            thread.join()
        of_after()
        self.assertEqual(functions(recording.path), {"of_inside", "of_thread"})
        self.assertIn("CPU profile of ", recording.summary)

    def test_formats_follow_the_extension(self):
        with uunwind.record(self.path("a.svg"), keep=False):
            of_inside()
        with uunwind.record(self.path("b.html"), rate=499) as recording:
            of_inside()
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.svg", "b.html", "b.uu"], recording.summary)
        with open(self.path("a.svg")) as file:
            self.assertIn("<svg", file.read())
        self.assertEqual(functions(self.path("b.uu")), {"of_inside"})

    def test_functions_are_decorated(self):
        @uunwind.record(self.path("f-%n.uu"), rate=499)
        def recurses(depth):
            """Text."""
            of_inside()
            return recurses(depth - 1) + 1 if depth else 0

        @uunwind.record(self.path("c-%p.uu"), rate=499)
        async def awaits():
            await asyncio.sleep(0)
            of_inside()
            return 5

        self.assertEqual((recurses(2), recurses.__name__, recurses.__doc__), (2, "recurses", "Text."))
        self.assertEqual((recurses(0), asyncio.run(awaits())), (0, 5))
        made = ["c-%d.uu" % os.getpid(), "f-1.uu", "f-2.uu"]
        self.assertEqual(sorted(os.listdir(self.folder)), made)
        for name in made:
            self.assertEqual(functions(self.path(name)), {"of_inside"})
        with self.assertRaisesRegex(TypeError, "cannot decorate a generator function"):
            @uunwind.record(self.path("g.uu"))
            def generates():
                yield

    def test_labels_are_those_of_all_threads(self):
        with uunwind.record(self.path("a.uu"), rate=499, labels={"request": 42, "none": None}):
            of_inside()
            thread = threading.Thread(target=of_thread)
            thread.start()
            thread.join()
        for options in ((), ("--filter", "label=request:42")):
            self.assertEqual(functions(self.path("a.uu"), *options), {"of_inside", "of_thread"})
        with self.assertRaisesRegex(ValueError, "a key has no =, and neither has a NUL"):
            uunwind.record(labels={"a=b": 1})
        self.refused("--label a=x+: a label is KEY=VALUE; the key has 63 bytes at most", labels={"a": "x" * 256})

    @unittest.skipUnless(hasattr(os, "memfd_create"), "Python was built without memfd_create()")
    def test_a_switch_that_was_just_made_is_not_used_yet(self):
        switch = os.memfd_create("uu-switch")
        try:
            self.assertFalse(_record._resume(os.getpid()))
        finally:
            os.close(switch)

    def test_an_exception_ends_the_recording(self):
        with self.assertRaises(KeyError):
            with uunwind.record(self.path("a.uu"), rate=499):
                of_inside()
                raise KeyError
        self.assertEqual(functions(self.path("a.uu")), {"of_inside"})

    def test_what_is_left_going_ends_with_the_program(self):
        code = "import sys; sys.argv[1:] = [%r]; exec(open(%r).read().partition('class Records')[0])\n" % (
            BINDINGS._name, __file__)
        code += "uunwind.record(%r, rate=499).start()\nof_inside()\n" % self.path("a.uu")
        subprocess.check_call([sys.executable, "-c", code])
        self.assertEqual(functions(self.path("a.uu")), {"of_inside"})

    def test_the_child_of_a_fork_leaves_it_alone(self):
        recording = uunwind.record(self.path("a.uu"), rate=499).start()
        child = os.fork()
        if not child:
            recording.stop()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        of_inside()
        recording.stop()
        self.assertEqual(functions(self.path("a.uu")), {"of_inside"})

    def refused(self, why, **more):
        with self.assertRaisesRegex(uunwind.RecordError, why):
            uunwind.record(**{"path": self.path("x.uu"), **more}).start()
        self.assertFalse(os.path.exists(self.path("x.uu")))

    def test_what_cannot_be_recorded(self):
        self.refused("this process cannot be recorded: cannot write .*: there is no folder", path="/no/such/x.uu")
        self.refused("no format has this extension", path=self.path("x.whatever"))
        self.refused("invalid option", options=["--whatever"])
        with self.assertRaisesRegex(ValueError, "mode='alloc': give 'cpu' or 'wall'"):
            uunwind.record(mode="alloc")
        with uunwind.record(self.path("a.uu"), rate=499) as recording:
            self.refused("this process is being recorded already, to .*a.uu: end that recording first")
            of_inside()
        self.assertEqual(functions(recording.path), {"of_inside"})

    def test_another_uu_records_it(self):
        other = subprocess.Popen([UU, "record", "-q", "-p", str(os.getpid()), "-o", self.path("other.uu")])
        # Not by `uu resume`: a thread that starts a process blocks all signals meanwhile.
        while not _record._resume(other.pid):
            self.assertIsNone(other.poll())
            time.sleep(0.005)
        _record._wait_for_timer()
        with uunwind.record(self.path("own.uu"), rate=499):
            of_inside()
        other.send_signal(signal.SIGINT)
        self.assertEqual(other.wait(), 0)
        self.assertEqual([functions(self.path(name)) for name in ("own.uu", "other.uu")], [{"of_inside"}] * 2)

    def test_nothing_was_sampled(self):
        recording = uunwind.record(self.path("x.uu")).start()
        recording.stop()
        if not os.path.exists(recording.path):
            self.assertIn("nothing was sampled", recording.summary)

    def test_uu_is_missing(self):
        tree, path = uunwind.TREE, os.environ["PATH"]
        try:
            uunwind.TREE, os.environ["PATH"] = "/nowhere", "/nowhere"
            for begin in (uunwind.record(self.path("x.uu")).start, uunwind.watchdog(1).start):
                with self.assertRaisesRegex(uunwind.Error, "uu was not found: /nowhere/bin/uu, .* is not there"):
                    begin()
        finally:
            uunwind.TREE, os.environ["PATH"] = tree, path


class Watchdog(unittest.TestCase):
    def until(self, dog, file, enough, work):
        """Works until what the watchdog has printed is enough; returns that."""
        with dog:
            while True:
                work()
                file.seek(0)
                text = file.read()
                if enough(text):
                    return text

    def test_a_program_that_holds_the_lock_of_the_interpreter(self):
        c = ctypes.PyDLL(None)

        def hangs_here():
            c.usleep(100000)

        with output() as file:
            # Twice, and in the call: its thread is in it and has the lock. Free-threaded builds have none.
            has_lock = sys.version_info < (3, 13) or sys._is_gil_enabled()
            stands = "waiting in clock_nanosleep" + (", holds the GIL" if has_lock else "")
            enough = lambda text: text.count(stands) > 1 and text.count("hangs_here (") > 1
            text = self.until(uunwind.watchdog(0.1, file=file, repeat=True), file, enough, hangs_here)
        self.assertIn("uunwind: process %d has gone on for 0.1 s without an end. Its threads:" % os.getpid(), text)

    def test_it_is_fed(self):
        with output() as file:
            dog = uunwind.watchdog(0.1, file=file.fileno())
            self.until(dog, file, lambda text: text.count("Its threads:") == 1, lambda: None)
            fed = collections.Counter()

            def feeds_once():
                file.seek(0)
                if not fed and "Its threads:" in file.read():
                    fed["once"] += 1
                    dog.feed()

            file.truncate(0)
            self.until(dog, file, lambda text: text.count("Its threads:") == 2, feeds_once)
        self.assertEqual(fed, {"once": 1})

    def test_a_program_that_ends_in_time(self):
        with output() as file:
            with uunwind.watchdog(1000, file=file) as dog:
                dog.feed()
                with self.assertRaisesRegex(uunwind.Error, "this watchdog watches already"):
                    dog.start()
            dog.stop()
            file.seek(0)
            self.assertEqual(file.read(), "")
        with self.assertRaisesRegex(ValueError, r"watchdog\(0\): give a time above 0"):
            uunwind.watchdog(0)

    def test_it_ends_a_program(self):
        code = "import uunwind, threading; uunwind.watchdog(0.1, exit=True).start(); threading.Event().wait()"
        done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, -signal.SIGABRT)
        self.assertIn(b"<module> (<string>:1)", done.stderr)
        self.assertIn(b"is ended by SIGABRT", done.stderr)

    def test_beside_a_recording(self):
        path = os.path.join(tempfile.mkdtemp(), "a.uu")
        with output() as file, uunwind.record(path, rate=499):
            dog = uunwind.watchdog(0.1, file=file, repeat=True)
            self.until(dog, file, lambda text: "of_inside (" in text, of_inside)
        self.assertEqual(functions(path), {"of_inside"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
