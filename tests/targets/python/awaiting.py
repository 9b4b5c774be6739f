"""Tasks that await each other in many ways. In the innermost function of each, the runtime's own view of what awaits
the task is written down, then a sample is taken.

The oracle is one line of JSON a sample, in the file $UU_TEST_ORACLE:
  way       what this is about
  own       qualified name of the running task's coroutine
  awaiting  [qualname, file, line] of what awaits it, innermost first, from asyncio.capture_call_graph(),
            Task.get_coro(), cr_await, gi_yieldfrom and ag_await
"""

import asyncio
import gc
import json
import os
import signal
import threading
import types

_oracle = open(os.environ["UU_TEST_ORACLE"], "w", buffering=1)


def suspended(coroutine):
    """The frames of what a task awaits, from the outer to the inner one."""
    frames = []
    while coroutine is not None:
        if type(coroutine).__name__ == "async_generator_asend":
            coroutine = gc.get_referents(coroutine)[0]
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(coroutine, kind + "_frame")), None)
        if kind is None:
            break
        frame = getattr(coroutine, kind + "_frame")
        frames.append([frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno])
        coroutine = coroutine.gi_yieldfrom if kind == "gi" else getattr(coroutine, kind + "_await")
    return frames


def awaiting(graph):
    frames = []
    while graph.awaited_by:
        if len(graph.awaited_by) > 1:
            return frames + [["(several tasks)", "", 0]]
        (graph,) = graph.awaited_by
        if isinstance(graph.future, asyncio.Task):
            frames += reversed(suspended(graph.future.get_coro()))
    return frames


def snap(way):
    own = asyncio.current_task().get_coro().__qualname__
    frames = awaiting(asyncio.capture_call_graph())
    _oracle.write(json.dumps({"way": way, "own": own, "awaiting": frames}) + "\n")
    signal.raise_signal(signal.SIGPROF)


async def leaf(way):
    await asyncio.sleep(0)
    snap(way)


async def deep(levels, awaitable):
    if levels:
        return await deep(levels - 1, awaitable)
    return await awaitable


class Wrapped:
    def __init__(self, awaitable):
        self.awaitable = awaitable

    def __await__(self):
        return (yield from self.awaitable.__await__())


@types.coroutine
def by_generator(awaitable):
    yield from awaitable.__await__()


async def numbers(way):
    yield 1
    yield await asyncio.create_task(leaf(way))


async def for_each(way):
    async for _ in numbers(way):
        pass


async def group(way):
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leaf(way))


async def waiter(task):
    await task


async def several(way):
    task = asyncio.create_task(leaf(way))
    await asyncio.gather(waiter(task), waiter(task))


async def slow(way):
    for _ in range(8):
        await asyncio.sleep(0)
    snap(way)


async def removed(way):
    """The task's set of awaiting tasks had two elements, and has one."""
    task = asyncio.create_task(slow(way))
    stays = asyncio.create_task(waiter(task))
    leaves = asyncio.create_task(asyncio.wait([task], timeout=0))
    await asyncio.wait([leaves])
    await stays


async def main():
    await leaf("nothing awaits")
    await asyncio.create_task(leaf("a task"))
    await deep(40, asyncio.create_task(leaf("many coroutines")))
    await asyncio.gather(leaf("gather"))
    await asyncio.gather(group("a group in gather"), group("another one"))
    await asyncio.wait_for(leaf("wait_for"), 60)
    await asyncio.wait([asyncio.create_task(leaf("wait"))])
    await asyncio.shield(leaf("shield"))
    await Wrapped(asyncio.create_task(leaf("__await__")))
    await by_generator(asyncio.create_task(leaf("a generator")))
    await asyncio.create_task(for_each("an asynchronous generator"))
    await several("several tasks")
    await removed("one left of several")


asyncio.run(main())
thread = threading.Thread(target=lambda: asyncio.run(group("in a thread")))
thread.start()
thread.join()
_oracle.close()
