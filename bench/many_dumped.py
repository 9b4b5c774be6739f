"""A hundred threads under the benchmark of dumps: 97 wait in five ways, in recursions of up to 15 calls; three compute,
of which one can at a time."""

import json
import select
import socket
import threading
import time

lock, never, sockets = threading.Lock(), threading.Event(), []
lock.acquire()


def sleeps():
    time.sleep(100000)


def locks():
    lock.acquire()


def receives():
    sockets.append(socket.socketpair())
    sockets[-1][0].recv(1)


def polls():
    sockets.append(socket.socketpair())
    select.select([sockets[-1][0]], [], [])


def computes():
    while True:
        json.loads(json.dumps({str(i): list(range(20)) for i in range(50)}))


def deep(n, wait):
    return deep(n - 1, wait) if n else wait()


for index in range(97):
    kind = [sleeps, locks, never.wait, receives, polls][index % 5]
    threading.Thread(target=deep, args=(index % 15, kind), daemon=True).start()
for _ in range(2):
    threading.Thread(target=computes, daemon=True).start()
time.sleep(1)
print("ready", flush=True)
computes()
