"""A provider with a ledger, which outlives it.

    provider.py ADDRESS PORT LEDGER [CERTIFICATE KEY]

The target of a call is `/GROUP/ID?ms=TIME`. The ledger gets a line when a call has come and when its response was sent,
with the time in nanoseconds since the epoch: `TIME came ID GROUP METHOD`, `TIME answered ID`, or `TIME left ID` if nobody
waited for the response any more. SIGHUP closes the connections without a call in progress; certificate and key are read
again for each connection.
"""

import asyncio
import os
import re
import signal
import ssl
import sys
import time

ADDRESS, PORT, LEDGER, *FILES = sys.argv[1:]
LINE = re.compile(rb"(\S+) /([^/?]+)/(\d+)\S*?[?&]ms=(\d+)\S* HTTP/1\.1\r\n")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
PADDING = "x" * 2_000

ledger = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
connections = set()


def note(*words):
    os.write(ledger, f"{time.time_ns()} {' '.join(words)}\n".encode())


class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.received, self.is_busy = transport, b"", False
        connections.add(self)

    def connection_lost(self, _):
        connections.discard(self)

    def data_received(self, data):
        self.received += data
        self.look()

    def look(self):
        end = self.received.find(b"\r\n\r\n")
        if end < 0 or self.is_busy:
            return
        length = LENGTH.search(self.received[:end])
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self.received) < whole:
            return
        line = LINE.match(self.received)
        self.received = self.received[whole:]
        if not line:
            self.transport.close()
            return
        method, group, number, ms = (part.decode() for part in line.groups())
        self.is_busy = True
        note("came", number, group, method)
        asyncio.get_running_loop().call_later(int(ms) / 1000, self.respond, number)

    def respond(self, number):
        self.is_busy = False
        if self.transport.is_closing():
            note("left", number)
            return
        body = f'{{"id":{number},"padding":"{PADDING}"}}'
        self.transport.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        note("answered", number)
        self.look()


def context():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*FILES)
    return tls


def read_again(connection, _name, _context):
    connection.context = context()


def close_idle():
    for connection in list(connections):
        if not connection.is_busy:
            connection.transport.close()


async def main():
    tls = context() if FILES else None
    if tls:
        tls.sni_callback = read_again
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, close_idle)
    server = await loop.create_server(Connection, ADDRESS, int(PORT), ssl=tls, backlog=1024)
    print("listens", flush=True)
    await server.serve_forever()


asyncio.run(main())
