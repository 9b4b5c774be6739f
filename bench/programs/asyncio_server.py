"""An asyncio server under load, with its clients in the same loop."""

import asyncio
import json


async def answer(reader, writer):
    while line := await reader.readline():
        request = json.loads(line)
        writer.write(json.dumps({"sum": sum(request["numbers"]), "echo": request["text"][::-1]}).encode() + b"\n")
        await writer.drain()
    writer.close()


async def client(port, rounds):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(rounds):
        writer.write(json.dumps({"numbers": list(range(number % 50)), "text": "request %d" % number}).encode() + b"\n")
        await writer.drain()
        assert json.loads(await reader.readline())["sum"] == sum(range(number % 50))
    writer.close()
    await writer.wait_closed()


async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(client(port, 300))


asyncio.run(main())
