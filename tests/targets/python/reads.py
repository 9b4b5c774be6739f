"""Reads /dev/zero, in functions with names of their own, for as much CPU time as is asked for."""

import sys
import time


def inner(zero, room):
    zero.readinto(room)


def reads(zero, room):
    for _ in range(50):
        inner(zero, room)


def main():
    room = bytearray(1 << 18)
    with open("/dev/zero", "rb", buffering=0) as zero:
        while time.thread_time() < float(sys.argv[1]):
            reads(zero, room)


main()
