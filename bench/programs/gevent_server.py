"""A gevent server under load, with its clients in the same process."""

import gevent
from gevent import socket
from gevent.server import StreamServer


def answer(connection, _):
    with connection.makefile("rwb") as file:
        for line in file:
            file.write(b"%d\n" % sum(int(word) for word in line.split()))
            file.flush()


def client(port):
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rwb") as file:
        for number in range(400):
            file.write(b" ".join(b"%d" % i for i in range(number % 50 + 1)) + b"\n")
            file.flush()
            assert int(file.readline()) == sum(range(number % 50 + 1))


server = StreamServer(("127.0.0.1", 0), answer)
server.start()
gevent.joinall([gevent.spawn(client, server.server_port) for _ in range(20)], raise_error=True)
server.stop()
