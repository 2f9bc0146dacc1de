"""A collector of ALF with a PULL socket: prints its address, then every message received, to standard error."""

import sys

import zmq

socket = zmq.Context().socket(zmq.PULL)
socket.bind(f"tcp://127.0.0.1:{sys.argv[1]}")
address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
print(f"listening {address}", file=sys.stderr, flush=True)
while True:
    frames = socket.recv_multipart()
    assert len(frames) == 1, frames
    print(frames[0].decode(), file=sys.stderr, flush=True)
