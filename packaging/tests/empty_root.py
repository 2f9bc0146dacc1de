"""Runs Egret and its provider in a root that holds the binary and a config, and prints the answers of three calls.

The provider speaks TLS. Its name is resolved by the name server below. A calendar quota of Zurich allows two calls.
Expects a network of its own, as `support.alone` makes it.
"""

import http.client
import socket
import subprocess
import sys
import threading
from pathlib import Path

from support import get, until

CONFIG = """
gateway:
  listen: [127.0.0.1:8000]
  workers: 1
  dns: { servers: ["127.0.0.1:5353"] }
control: { listen: 127.0.0.1:8001 }
data_dir: /data
providers:
  api: { url: "https://provider.test:9000", tls: { ca: /ca.pem, server_name: localhost } }
quotas:
  daily: { kind: calendar, limit: 2, period: day, renews: { time_zone: Europe/Zurich } }
flows:
  - { name: api, match: { provider: api }, remedies: [ { limit: { quota: daily } } ] }
"""


def serve_names():
    """Answers every question with 127.0.0.1, or with nothing if it asks for another type."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 5353))

    def serve():
        while True:
            query, client = server.recvfrom(512)
            end = query.index(b"\0", 12) + 5
            is_address = query[end - 4 : end - 2] == b"\0\1"
            head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_address else b"\0\0") + b"\0\0\0\0"
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if is_address else b""
            server.sendto(head + query[12:end] + answer, client)

    threading.Thread(target=serve, daemon=True).start()


def main(root):
    serve_names()
    Path(root, "egret.yaml").write_text(CONFIG)
    inside = ["chroot", root, "/egret"]
    provider = subprocess.Popen(
        [*inside, "provider", "--tls", "--tls-ca", "/ca.pem"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until("the provider's authority is written", Path(root, "ca.pem").exists)
    gateway = subprocess.Popen([*inside, "run", "--config", "/egret.yaml"], stdout=subprocess.DEVNULL)
    try:
        until("the gateway is ready", lambda: (get(8001, "/readyz") or (0,))[0] == 200)
        for _ in range(3):
            connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=10)
            connection.request("GET", "/api/get")
            response = connection.getresponse()
            response.read()
            print(response.status, response.headers.get("x-egret-error", "forwarded"), flush=True)
            connection.close()
    finally:
        gateway.terminate()
        provider.terminate()
        gateway.wait()
        provider.wait()


if __name__ == "__main__":
    main(sys.argv[1])
