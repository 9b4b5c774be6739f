"""Calls of each kind of function that mypyc makes. The comment of a line names the function that makes the call."""

from typing import Callable


def leaf(n: int, back: Callable[[], None]) -> int:
    back()  # leaf
    return n


class Plain:
    def meth(self, back: Callable[[], None]) -> int:
        return leaf(1, back)  # Plain.meth


def through_python(call: Callable[[Callable[[], None]], int], back: Callable[[], None]) -> int:
    return call(back)  # through_python


def outer(back: Callable[[], None]) -> int:
    return through_python(Plain().meth, back)  # outer
