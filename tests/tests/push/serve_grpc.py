"""A server of gRPC, by grpcio, for what `uu record --push` sends: serve_grpc.py FOLDER [PEM]

PEM: a file with a certificate and its key, for TLS. Prints its port, and serves until it is killed. What it does with
each call, from the first one on, says FOLDER/plan.json: a list of answers, of which the last one is that of all
further calls.

    {"message": "0a00"}                        OK, with this message, in hexadecimal
    {"code": "UNAVAILABLE", "said": "busy", "details": "..."}     an end, with the bytes of a google.rpc.Status
    {"token": "Bearer x", "message": ""}       OK for who says who it is; UNAUTHENTICATED for others

Each call's message becomes FOLDER/N.request, and what comes with it FOLDER/N.json.
"""

import json
import pathlib
import sys
import threading
from concurrent import futures

import grpc

folder = pathlib.Path(sys.argv[1])
plan = json.loads((folder / "plan.json").read_text())
lock, count = threading.Lock(), 0


def serve(method, message, context):
    global count
    with lock:
        number, count = count, count + 1
    metadata = [[key, value] for key, value in context.invocation_metadata() if isinstance(value, str)]
    left = context.time_remaining()
    known = {"method": method, "metadata": metadata, "seconds": left if left is not None and left < 1e6 else None}
    (folder / ("%d.request" % number)).write_bytes(message)
    # Who looks for a call looks for this file.
    partial = folder / ("%d.part" % number)
    partial.write_text(json.dumps(known))
    partial.rename(folder / ("%d.json" % number))
    answer = plan[min(number, len(plan) - 1)]
    if "token" in answer and ["authorization", answer["token"]] not in metadata:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
    if "code" in answer:
        if "details" in answer:
            context.set_trailing_metadata([("grpc-status-details-bin", bytes.fromhex(answer["details"]))])
        context.abort(grpc.StatusCode[answer["code"]], answer["said"])
    return bytes.fromhex(answer["message"])


class All(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_unary_rpc_method_handler(lambda message, context: serve(call.method, message, context))


server = grpc.server(futures.ThreadPoolExecutor(max_workers=2), handlers=[All()])
if len(sys.argv) > 2:
    pem = pathlib.Path(sys.argv[2]).read_bytes()
    begin = pem.index(b"-----BEGIN PRIVATE KEY")
    identity = grpc.ssl_server_credentials([(pem[begin:], pem[:begin])])
    port = server.add_secure_port("127.0.0.1:0", identity)
else:
    port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
