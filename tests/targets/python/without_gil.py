"""A C function that runs without the GIL, three levels deep: the Python frames below it must still be seen."""

from snap import snap_released

SHAPE = "E{<module> main work snap_released} @_ctypes @libffi n1 n2 n3 cap"


def work():
    snap_released(SHAPE)


def main():
    for _ in range(10):
        work()


main()
