"""The program under the end-to-end benchmark: Python calling itself 20 deep, with calls into C and back. Does a fixed
amount of work, then writes its own CPU seconds (user and system) to the file argv[2]. argv[1]: how much work."""

import functools
import resource
import sys


def leaf(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total


def through_c(n):
    return sum(sorted((leaf(n // 4) + k for k in range(4)), key=lambda x: -x))


def deep(level, n):
    if level == 0:
        return leaf(n) + through_c(n)
    return deep(level - 1, n) + 1


def main():
    work = int(sys.argv[1])
    total = functools.reduce(lambda a, _: a + deep(20, 400), range(work), 0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(sys.argv[2], "w") as out:
        out.write(f"{used.ru_utime + used.ru_stime}\n")
    print(total)


main()
