"""A class that is instantiated often enough for the interpreter to inline its __init__: no frame may appear twice."""

from snap import snap

INLINED = "E{<module> main V.__init__ snap} cap"
CALLED = "E{<module> main} ~slot_tp_init E{V.__init__ snap} cap"


class V:
    def __init__(self):
        snap([INLINED, CALLED])


def main():
    for _ in range(60):
        V()


main()
