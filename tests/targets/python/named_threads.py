"""Threads with names of all kinds, in three steps: at first, with a thread renamed, and in a forked child.

named_threads.py FOLDER: writes FOLDER/said-STEP, a line for each thread that lives: its id and its name. Goes on once
there is FOLDER/go-STEP, so that nothing depends on time.
"""

import os
import sys
import threading
import time

folder = sys.argv[1]
said = []
lock = threading.Lock()
begun = threading.Semaphore(0)
over = threading.Event()


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def say(name):
    with lock:
        said.append("%d %s\n" % (threading.get_native_id(), name))


def step(number):
    burn(0.05)
    path = os.path.join(folder, "said-%d" % number)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.writelines(said)
    os.rename(path + ".new", path)
    while not os.path.exists(os.path.join(folder, "go-%d" % number)):
        time.sleep(0.01)


def work(name):
    say(name)
    burn(0.05)
    begun.release()
    over.wait()


class Own(threading.Thread):
    """A thread with more attributes than the instances of a class share, which are in a dictionary."""

    def __init__(self, name):
        for n in range(40):
            setattr(self, "attribute_%d" % n, n)
        super().__init__(name=name)

    def run(self):
        self.__dict__["more"] = 1
        work(self.name)


class Slots(threading.Thread):
    __slots__ = ("one", "two")

    def run(self):
        work(self.name)


def start(threads):
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    return threads


def end(threads):
    over.set()
    for thread in threads:
        thread.join()
    over.clear()


def child():
    del said[:]
    threads = start([threading.Thread(target=work, args=("in the child",), name="in the child")])
    step(3)
    end(threads)


names = ["worker-1", "na\u00efve", "\u043f\u043e\u0442\u043e\u043a", "\u7cf8 \U0001f9f5", "long " + "x" * 195]
# A thread that has ended leaves its name to nobody.
ended = threading.Thread(target=burn, args=(0,), name="ended")
ended.start()
ended.join()
threads = [threading.Thread(target=work, args=(name,), name=name) for name in names]
threads = start(threads + [Own("own"), Slots(name="slots")])
step(1)
threads[0].name = "renamed"
said[:] = [line.replace("worker-1", "renamed") for line in said]
step(2)
end(threads)
pid = os.fork()
if pid == 0:
    child()
    os._exit(0)
sys.exit(1 if os.waitpid(pid, 0)[1] else 0)
