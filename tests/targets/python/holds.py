# Keeps what one line allocates, and lets go what another does.


def keeps(kept):
    for _ in range(200):
        kept.append(bytearray(100_000))


def drops():
    for _ in range(2000):
        bytearray(50_000)


def main():
    kept = []
    drops()
    keeps(kept)
    drops()
    print(len(kept))


main()
