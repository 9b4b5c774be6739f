"""Asks `uu kernel-events` for events of threads, as the packets of docs/design/kernel.md say.

Arguments: the socket, then what is asked for: a thread's number, "own", "names", "period", "packet", "long". Writes for
each what came: "granted", the name of an error, or "closed".
"""

import errno
import os
import socket
import struct
import sys


def packet(kind, tid, period=1_000_000):
    return struct.pack("<8sIIIIQ", b"uu-open1", kind, 1 if kind == 1 else 0, tid, 0, period)


def answer(path, sent):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(path)
        except OSError as error:
            return errno.errorcode[error.errno]
        connection.settimeout(60)
        try:
            # A descriptor with it, which nobody takes.
            socket.send_fds(connection, [sent], [0])
            data, fds, _, _ = socket.recv_fds(connection, 64, 4)
        except (ConnectionResetError, BrokenPipeError):
            return "closed"
        for fd in fds:
            os.close(fd)
        if not data:
            return "closed"
        (error,) = struct.unpack("<i", data)
        assert (error == 0) == (len(fds) == 1), (error, fds)
        return errno.errorcode[error] if error else "granted"


own = os.getpid()
for wanted in sys.argv[2:]:
    sent = {
        "own": packet(1, own),
        "names": packet(2, 0, 0),
        "period": packet(1, own, 10),
        "packet": b"\0" * 32,
        "long": packet(1, own) + b"\0",
    }.get(wanted)
    print(answer(sys.argv[1], sent or packet(1, int(wanted))))
