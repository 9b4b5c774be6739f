"""Exceptions in flight: in except, finally, __exit__, in __del__ while the stack unwinds, and thrown into
generators."""

from snap import remember_callers, snap


class Context:
    def __enter__(self):
        return self

    def __exit__(self, *what):
        snap()
        return False


class Dying:
    def __del__(self):
        snap()


def fail():
    raise ValueError("wanted")


def in_except():
    try:
        fail()
    except ValueError:
        snap("E{<module> main in_except snap} cap")


def in_finally():
    try:
        fail()
    finally:
        snap("E{<module> main in_finally snap} cap")


def in_exit():
    with Context():
        fail()


def in_del():
    dying = Dying()
    fail()
    return dying


def inner():
    try:
        yield 1
    except ValueError:
        snap()
        yield 2
    finally:
        snap()


def middle():
    try:
        yield from inner()
    finally:
        snap()


def thrown():
    generator = middle()
    next(generator)
    assert (remember_callers() or generator.throw(ValueError("thrown"))) == 2
    generator.close()


def main():
    for _ in range(3):
        in_except()
        for function in (in_finally, in_exit, in_del):
            try:
                function()
            except ValueError:
                pass
        thrown()


main()
