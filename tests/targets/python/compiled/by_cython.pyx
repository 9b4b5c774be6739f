# cython: language_level=3
"""Calls of each kind of function that Cython makes. The comment of a line names the function that makes the call."""


cdef int leaf(int n, back) except -1:
    back()  # leaf
    return n


cpdef int both(int n, back) except -1:
    return leaf(n, back) + n  # both


def load_x(int n, back):
    return both(n, back) + 1  # load_x


class Plain:
    def meth(self, back):
        return load_x(1, back)  # Plain.meth


cdef class Fast:
    def meth(self, back):
        return Plain().meth(back)  # Fast.meth


def outer(back):
    def inner():
        return Fast().meth(back)  # outer.inner

    return inner()  # outer
