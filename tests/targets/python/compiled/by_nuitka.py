"""Calls of each kind of function that Nuitka makes. The comment of a line names the function that makes the call."""


def leaf(n, back):
    back()  # leaf
    return n


class Plain:
    def meth(self, back):
        return leaf(1, back)  # Plain.meth


def outer(back):
    def inner():
        return Plain().meth(back)  # outer.inner

    return inner()  # outer
