"""Functions that use CPU time, each under labels of its own: the tests have what their samples must have. With an
argument, it says "ready", and does so again for each line of its input."""

import asyncio
import sys
import threading
import time

import uunwind


def burn():
    end = time.thread_time() + 0.15
    while time.thread_time() < end:
        sum(range(1000))


def of_none():
    burn()


@uunwind.label(request="/plain")
def of_plain():
    burn()


def of_inner():
    burn()


def of_taken():
    burn()


def of_outer():
    burn()


def of_task_a():
    burn()


def of_task_b():
    burn()


def of_child_of_a():
    burn()


def of_between():
    burn()


def of_decorated():
    burn()


def of_thread():
    burn()


async def task(name, function, child=None):
    with uunwind.label(task=name):
        for _ in range(3):
            function()
            await asyncio.sleep(0)
        if child:
            await asyncio.ensure_future(child())


async def child():
    await asyncio.sleep(0)
    of_child_of_a()


async def between():
    for _ in range(3):
        of_between()
        await asyncio.sleep(0)


@uunwind.label(decorated="yes")
async def decorated():
    for _ in range(3):
        of_decorated()
        await asyncio.sleep(0)


async def main():
    await asyncio.gather(task("a", of_task_a, child), between(), task("b", of_task_b), decorated())


def all_of_them():
    of_none()
    of_plain()
    with uunwind.label({"http.route": "/x"}, user=7):
        with uunwind.label(user=8, more="yes"):
            of_inner()
        with uunwind.label(user=None):
            of_taken()
        of_outer()
        asyncio.run(main())
        thread = threading.Thread(target=of_thread)
        thread.start()
        thread.join()
    of_none()


if len(sys.argv) == 1:
    all_of_them()
else:
    # Once in each recording of the running program, and once while nothing records it.
    all_of_them()
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "end\n":
            break
        all_of_them()
        print("done", flush=True)
