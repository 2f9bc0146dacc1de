"""Applications for uvicorn (`asgi`) and gunicorn (`wsgi`): report each request on standard output, then respond."""

import re
import sys
import threading
import zlib

# A line can be longer than what the system writes in one piece.
LOCK = threading.Lock()


def to_hex(value):
    return value.hex() or "-"


def report(method, target, fields, body):
    parts = ["R", to_hex(method), to_hex(target), str(len(body)), str(zlib.adler32(body)), to_hex(body[:512])]
    parts += [f"{to_hex(name)}:{to_hex(value)}" for name, value in fields]
    with LOCK:
        sys.stdout.write(" ".join(parts) + "\n")
        sys.stdout.flush()
    case = next((value for name, value in fields if name.lower() == b"x-case"), b"-")
    return re.sub(rb"[^a-z0-9-]", b"", case)


async def asgi(scope, receive, send):
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    case = report(scope["method"].encode("latin1"), target, scope["headers"], body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-echo", case), (b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"ok\n"})


def wsgi(environ, start_response):
    body = environ["wsgi.input"].read()
    if len(body) < int(environ.get("CONTENT_LENGTH") or 0):
        raise OSError("the client has gone")
    fields = [(key[5:].replace("_", "-"), value) for key, value in environ.items() if key.startswith("HTTP_")]
    fields += [("content-type", environ["CONTENT_TYPE"])] if "CONTENT_TYPE" in environ else []
    fields = [(name.encode("latin1"), value.encode("latin1")) for name, value in fields]
    case = report(environ["REQUEST_METHOD"].encode("latin1"), environ["RAW_URI"].encode("latin1"), fields, body)
    start_response("200 OK", [("x-echo", case.decode()), ("Content-Length", "3")])
    return [b"ok\n"]
