"""The answer of tests/src/web.rs, for a server of WSGI."""


def application(environment, start):
    body = str(sum(n * n for n in range(2000))).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
