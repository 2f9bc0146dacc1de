"""Starts the programs of a script on free ports, and stops them."""

import http.client
import re
import signal
import socket
import subprocess
import threading
import time

# A response may wait for the store of a cluster to learn.
GET_SECONDS = 60

# A program that takes longer to stop is killed.
STOP_SECONDS = 30

ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)")


class Programs:
    """Programs that end with the script."""

    def __init__(self):
        self.running = []

    def start(self, *command):
        # In a session of its own: Ctrl-C ends the script, which then ends its programs in order.
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        program = subprocess.Popen(command, start_new_session=True, **options)
        self.running.append(program)
        return program

    def stop(self):
        for program in reversed(self.running):
            program.send_signal(signal.SIGTERM)
        for program in self.running:
            try:
                program.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                program.kill()


def addresses(program, *lines_of):
    """Waits for the lines with the addresses that `program` listens on, and lets it write on."""
    found, seen = {}, []
    for line in program.stderr:
        seen.append(line)
        for line_of in lines_of:
            if line_of in line:
                found[line_of] = ADDRESS.search(line)[0]
        if len(found) == len(lines_of):
            threading.Thread(target=program.stderr.read, daemon=True).start()
            return [found[line_of] for line_of in lines_of]
    raise SystemExit(f"{program.args[0]} did not start:\n{''.join(seen)}")


def start_redis(programs, directory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--bind", "127.0.0.1", "--port", str(port), "--dir", directory, "--save", "", "--appendonly", "no")
    redis = programs.start("redis-server", *options)
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return f"127.0.0.1:{port}"
        except OSError:
            if redis.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("redis-server did not start") from None
            time.sleep(0.02)


def get(address, path, headers=None):
    """Returns the status and the body of a response. Raises `OSError` if there is none."""
    connection = http.client.HTTPConnection(address, timeout=GET_SECONDS)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise OSError(error) from error
    finally:
        connection.close()
