"""Waits of known kinds, each in a function and a thread of its own, for the seconds that are given."""
import select, socket, sys, threading, time

end = time.monotonic() + float(sys.argv[1])


def inner(wait):
    while time.monotonic() < end:
        wait()


def sleeps():
    time.sleep(0.05)


def locks():
    lock.acquire(timeout=0.04)


def receives():
    select.select([left], [], [], 0.03)


def spins():
    sum(range(20000))


lock = threading.Lock()
lock.acquire()
left, right = socket.socketpair()
threads = [threading.Thread(target=inner, args=(f,)) for f in (sleeps, locks, receives, spins)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
