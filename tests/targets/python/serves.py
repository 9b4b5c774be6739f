"""A web server whose threads answer with what they have computed. It writes "ready" and its port, and ends with 0 after
a line on standard input."""

import http.server
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is written at once.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        body = str(sum(n * n for n in range(2000))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", server.server_address[1], flush=True)
sys.exit(0 if sys.stdin.readline() else 1)
