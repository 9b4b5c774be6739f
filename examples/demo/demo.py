"""The demo: Python calls C (heat_run), which calls Python back (watch), which calls C again (heat_roughness) and does
some work of its own, in four threads.

    cc -O2 -g -shared -fPIC -o libheat.so examples/demo/heat.c -lm
    target/uu/bin/uu record -o demo.svg -- python3 examples/demo/demo.py ./libheat.so

ci/demo does the same after a build."""

import ctypes
import sys
import threading

SIDE = 160
WATCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_double))


def load(path):
    heat = ctypes.CDLL(path)
    plate = ctypes.POINTER(ctypes.c_double)
    heat.heat_run.argtypes = [plate, plate, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, WATCH]
    heat.heat_roughness.argtypes = [plate, ctypes.c_size_t]
    heat.heat_roughness.restype = ctypes.c_double
    return heat


class Plate:
    def __init__(self, heat, seed):
        self.heat = heat
        self.cells = (ctypes.c_double * (SIDE * SIDE))()
        self.spare = (ctypes.c_double * (SIDE * SIDE))()
        self.history = []
        for i in range(SIDE * SIDE):
            self.cells[i] = float((i * seed) % 97)

    def collatz(self, number):
        """Work in Python, so that the profile has some."""
        steps = 0
        while number != 1:
            number = number // 2 if number % 2 == 0 else 3 * number + 1
            steps += 1
        return steps

    def watch(self, round_number, cells):
        rough = self.heat.heat_roughness(cells, SIDE)
        self.history.append((rough, max(self.collatz(n) for n in range(1, 250))))
        return 0

    def cool(self):
        watch = WATCH(self.watch)
        return self.heat.heat_run(self.cells, self.spare, SIDE, 200, 60, watch)


def work(heat, seed, results):
    plate = Plate(heat, seed)
    results[seed] = plate.cool()


def main():
    heat = load(sys.argv[1])
    results = {}
    threads = [threading.Thread(target=work, args=(heat, seed, results)) for seed in (3, 5, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("rounds:", sum(results.values()))


main()
