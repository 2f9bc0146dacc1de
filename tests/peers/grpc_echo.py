"""A gRPC server over TLS, and its client.

    grpc_echo.py serve CERTIFICATE KEY SOCKET     prints `listening PORT` to standard error
    grpc_echo.py call TARGET      makes a call, and one that streams both ways
    grpc_echo.py kinds TARGET     makes a call of each kind, one that succeeds at the second try only, and a last one

The client trusts what gRPC trusts by default.
"""

import itertools
import sys
from concurrent import futures

import grpc

CALL, STREAM = "/echo.Echo/Call", "/echo.Echo/Stream"
REPEAT, JOIN, SECOND_TRY = "/echo.Echo/Repeat", "/echo.Echo/Join", "/echo.Echo/SecondTry"


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == CALL:
            return grpc.unary_unary_rpc_method_handler(call)
        if details.method == STREAM:
            return grpc.stream_stream_rpc_method_handler(stream)
        if details.method == REPEAT:
            return grpc.unary_stream_rpc_method_handler(repeat)
        if details.method == JOIN:
            return grpc.stream_unary_rpc_method_handler(join)
        if details.method == SECOND_TRY:
            return grpc.unary_unary_rpc_method_handler(second_try)
        return None


def call(request, context):
    seen = [value for name, value in context.invocation_metadata() if name == "x-added"]
    return b"%s with %s" % (request, str(seen).encode())


def stream(requests, _context):
    for request in requests:
        yield request[::-1]


def repeat(request, _context):
    for _ in range(3):
        yield request


def join(requests, _context):
    return b"+".join(requests)


tries = itertools.count(1)


def second_try(request, context):
    number = next(tries)
    if number == 1:
        context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
    return b"%s at try %d" % (request, number)


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


def kinds(target):
    with grpc.secure_channel(target, grpc.ssl_channel_credentials()) as channel:
        sent = [b"one", b"two"]
        print(channel.unary_unary(CALL)(b"hello", timeout=20))
        print(list(channel.unary_stream(REPEAT)(b"again", timeout=20)))
        print(channel.stream_unary(JOIN)(iter(sent), timeout=20))
        print(list(channel.stream_stream(STREAM)(iter(sent), timeout=20)))
        print(channel.unary_unary(SECOND_TRY)(b"served", timeout=20))
        try:
            print(channel.unary_unary(CALL)(b"hello", timeout=20))
        except grpc.RpcError as error:
            print(error.code().name)


{"serve": serve, "call": client, "kinds": kinds}[sys.argv[1]](*sys.argv[2:])
