"""`uu` and `python -m uunwind`: replaces this process by the command itself, so that pid and signals are its own."""

import os
import sys

from uunwind import TREE


def main() -> None:
    os.execv(os.path.join(TREE, "bin", "uu"), ["uu"] + sys.argv[1:])


if __name__ == "__main__":
    main()
