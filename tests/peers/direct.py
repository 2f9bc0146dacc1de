"""Runs a command in a network namespace that has nothing but a loopback interface, whose port 443 leads to a Unix socket.

    unshare --user --map-root-user --net python3 direct.py SOCKET COMMAND...
"""

import fcntl
import socket
import struct
import subprocess
import sys
import threading

# ioctl that sets the flags of an interface, and the flag of one that is up: netdevice(7).
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def start_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def carry(source, target):
    """Carries bytes in one direction until it ends, and passes its end on."""
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One side has left: the other one must learn it.
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def accept(listener, path):
    while True:
        client, _ = listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        for pair in ((client, server), (server, client)):
            threading.Thread(target=carry, args=pair, daemon=True).start()


path, command = sys.argv[1], sys.argv[2:]
start_loopback()
listener = socket.create_server(("127.0.0.1", 443))
threading.Thread(target=accept, args=(listener, path), daemon=True).start()
sys.exit(subprocess.run(command).returncode)
