"""A pool whose worker processes are replaced by new ones all the time computes until a byte comes, or the input ends. A
result that is wrong, or missing, ends it with exit code 1. Prints the number of results."""

import multiprocessing
import os
import sys
import threading

ROOTS = range(1000, 1040)
WANTED = [sum(i * i for i in range(root)) for root in ROOTS]


def squares(root):
    return sum(i * i for i in range(root))


def waits(over):
    os.read(0, 1)  # by no lock that a forked process could inherit
    over.set()


def main():
    over, done = threading.Event(), 0
    threading.Thread(target=waits, args=(over,), daemon=True).start()
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=25) as pool:
        print("ready", flush=True)
        while not over.is_set():
            if pool.map_async(squares, ROOTS, chunksize=1).get(60) != WANTED:
                sys.exit(1)
            done += len(WANTED)
        pool.close()
        pool.join()
    print(done, flush=True)


main()
