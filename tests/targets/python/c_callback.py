"""C functions that call Python back."""

import functools
import re

from snap import snap


def rec(n, shape):
    if n == 0:
        return snap(shape)
    return rec(n - 1, shape)


def by_sort():
    def key(item):
        rec(1, "E{<module> main by_sort} ~list_sort_impl E{by_sort.<locals>.key rec rec snap} cap")
        return item

    return sorted([1], key=key)


def by_reduce():
    def add(a, b):
        rec(1, "E{<module> main by_reduce} ~functools_reduce E{by_reduce.<locals>.add rec rec snap} cap")
        return a + b

    return functools.reduce(add, [1, 2])


def by_sub():
    inner = "E{by_sub.<locals>.<lambda> rec rec snap} cap"
    return re.sub("b", lambda match: rec(1, "E{<module> main by_sub sub} ~pattern_subx " + inner) or "x", "abc")


def by_map():
    def twice(item):
        rec(0, "E{<module> main by_map} ~map_next E{by_map.<locals>.twice rec snap} cap")
        return 2 * item

    return max(map(twice, [1]))


def main():
    for _ in range(3):
        by_sort()
        by_reduce()
        by_sub()
        by_map()


main()
