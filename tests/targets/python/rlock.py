"""Threads that wait for locks; says who has what, each as [what, id, id of the holder]."""

import json
import sys
import threading
import time

mine, other, plain = threading.RLock(), threading.RLock(), threading.Lock()
ready = threading.Barrier(2)


def holds():
    mine.acquire()
    mine.acquire()
    plain.acquire()
    ready.wait()
    time.sleep(1_000_000)


def wants(lock):
    ready.wait()
    lock.acquire()


def for_a_while(lock):
    ready.wait()
    lock.acquire(timeout=1_000_000)


def within(condition):
    ready.wait()
    with condition:
        pass


def begin(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    ready.wait()
    return thread.native_id


other.acquire()
main = threading.main_thread().native_id
holder = begin(holds)
said = [["rlock", begin(wants, mine), holder], ["rlock", begin(for_a_while, mine), holder]]
said += [["rlock", begin(within, threading.Condition(mine)), holder], ["rlock", begin(wants, other), main]]
said += [[None, begin(wants, plain), None], [None, begin(for_a_while, plain), None], [None, holder, None]]
print(json.dumps(said), flush=True)
sys.stdin.readline()
