"""A gRPC server over TLS, and its client.

    grpc_echo.py serve CERTIFICATE KEY SOCKET     prints `listening PORT` to standard error
    grpc_echo.py call TARGET

The client trusts what gRPC trusts by default.
"""

import sys
from concurrent import futures

import grpc

CALL, STREAM = "/echo.Echo/Call", "/echo.Echo/Stream"


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == CALL:
            return grpc.unary_unary_rpc_method_handler(call)
        if details.method == STREAM:
            return grpc.stream_stream_rpc_method_handler(stream)
        return None


def call(request, context):
    seen = [value for name, value in context.invocation_metadata() if name == "x-added"]
    return b"%s with %s" % (request, str(seen).encode())


def stream(requests, _context):
    for request in requests:
        yield request[::-1]


def serve(certificate, key, path):
    with open(certificate, "rb") as file, open(key, "rb") as other:
        credentials = grpc.ssl_server_credentials([(other.read(), file.read())])
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Echo()])
    server.add_secure_port(f"unix:{path}", credentials)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    print("listening", port, file=sys.stderr, flush=True)
    server.wait_for_termination()


def client(target):
    with grpc.secure_channel(target, grpc.ssl_channel_credentials()) as channel:
        reply = channel.unary_unary(CALL)(b"hello", metadata=(("x-added", "by the client"),), timeout=20)
        print(reply.decode())
        messages = [bytes([65 + number]) * 100_000 + b"." for number in range(20)]
        replies = list(channel.stream_stream(STREAM)(iter(messages), timeout=20))
        print(len(replies), replies == [message[::-1] for message in messages])


{"serve": serve, "call": client}[sys.argv[1]](*sys.argv[2:])
