# Keeps small objects, and says how large they are.
import sys


def keeps(kept, count):
    for number in range(count):
        kept.append(b"%099d" % number)


def main():
    count = 100_000
    # The list takes no memory while it is filled.
    kept = [None] * (2 * count)
    del kept[:]
    keeps(kept, count)
    print(sum(map(sys.getsizeof, kept)))


main()
