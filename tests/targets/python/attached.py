"""Two threads that compute in known functions, for ever. "ready" is written first."""

import threading


def turns(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


def outer():
    while True:
        middle()


def middle():
    return sorted([1, 2], key=inner)


def inner(n):
    return turns(20000 + n)


class Worker:
    def run(self):
        while True:
            self.part()

    def part(self):
        return turns(30000)


threading.Thread(target=Worker().run, daemon=True).start()
print("ready", flush=True)
outer()
