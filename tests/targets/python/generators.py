"""Generators, driven from C (list) and from Python (a for loop, after its specialisation)."""

from snap import snap


def sub(shapes):
    yield 1
    if shapes:
        snap(shapes)
    yield 2


def gen(shapes):
    yield from sub(shapes)


def from_c(shapes):
    return list(gen(shapes))


def from_python(shapes):
    total = 0
    for number in gen(shapes):
        total += number
    return total


def main():
    apart = "E{gen} E{sub snap} cap"
    from_c(["E{<module> main from_c} ~gen_iternext E{gen sub snap} cap", "E{<module> main from_c} " + apart])
    for _ in range(50):
        from_c(None)
        from_python(None)
    from_c(["E{<module> main from_c} ~gen_iternext E{gen sub snap} cap", "E{<module> main from_c} " + apart])
    # `for` over a generator runs in the same activation once it is specialised; `yield from` may, or may not.
    from_python(["E{<module> main from_python gen sub snap} cap", "E{<module> main from_python gen} E{sub snap} cap",
                 "E{<module> main from_python} E{gen sub snap} cap", "E{<module> main from_python} " + apart])


main()
