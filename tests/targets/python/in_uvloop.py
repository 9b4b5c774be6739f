"""Coroutines, callbacks, timers and a protocol of uvloop, whose event loop is C that calls Python."""

import asyncio

import uvloop

from snap import snap, snap_released


async def inner():
    await asyncio.sleep(0.001)
    snap()
    snap_released()


async def outer():
    await asyncio.gather(inner(), asyncio.wait_for(inner(), 60))


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        snap()

    def data_received(self, data):
        snap_released()
        self.transport.write(data)


async def main():
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def called_back():
        snap()
        loop.call_later(0.001, lambda: (snap(), done.set_result(None)))

    loop.call_soon(called_back)
    await done
    await outer()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    writer.close()
    server.close()


uvloop.install() if not hasattr(uvloop, "run") else None
asyncio.run(main()) if not hasattr(uvloop, "run") else uvloop.run(main())
