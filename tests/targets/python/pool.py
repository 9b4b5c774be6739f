"""Children of multiprocessing, one that is there already and one that comes later, burn CPU time until they are ordered
to stop. The parent says their process ids."""

import multiprocessing
import sys
import time


def burns(over):
    while not over.is_set():
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass


def starts(context, over):
    child = context.Process(target=burns, args=(over,))
    child.start()
    print(child.pid, flush=True)
    return child


def main():
    context = multiprocessing.get_context("fork")
    over = context.Event()
    children = [starts(context, over)]
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "more\n":
            children.append(starts(context, over))
        else:
            break
    over.set()
    for child in children:
        child.join()


main()
