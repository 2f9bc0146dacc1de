"""Clients: requests, httpx, aiohttp or curl, by the first argument.

Each line of the input is `NUMBER URL`. On a connection of its own, the client gets URL/qNUMBER-r, and then URL/qNUMBER-ok.
It prints `C NUMBER RESPONSE RESPONSE`; a response is `E` if there is none.
"""

import asyncio
import concurrent.futures
import subprocess
import sys
import tempfile
import threading
import zlib
from pathlib import Path

SECONDS = 30
# A line can be longer than what the system writes in one piece.
LOCK = threading.Lock()


def to_hex(value):
    return value.hex() or "-"


def seen(status, fields, body):
    parts = ["R", to_hex(str(status).encode()), "-", str(len(body)), str(zlib.adler32(body)), to_hex(body[:512])]
    return ",".join(parts + [f"{to_hex(name)}:{to_hex(value)}" for name, value in fields])


def latin1(fields):
    return [(name.encode("latin1", "replace"), value.encode("latin1", "replace")) for name, value in fields]


def with_requests(urls):
    import requests

    with requests.Session() as session:
        session.trust_env = False

        def get(url):
            response = session.get(url, timeout=SECONDS, allow_redirects=False)
            return seen(response.status_code, latin1(response.raw.headers.items()), response.content)

        return each(get, urls)


def with_httpx(urls):
    import httpx

    with httpx.Client(timeout=SECONDS, trust_env=False) as client:

        def get(url):
            response = client.get(url)
            return seen(response.status_code, response.headers.raw, response.content)

        return each(get, urls)


def with_aiohttp(urls):
    import aiohttp

    async def all():
        results = []
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS)) as session:
            for url in urls:
                try:
                    async with session.get(url, allow_redirects=False) as response:
                        results.append(seen(response.status, response.raw_headers, await response.read()))
                except Exception:
                    results.append("E")
        return results

    return asyncio.run(all())


def with_curl(urls):
    with tempfile.TemporaryDirectory() as directory:
        options = ["--silent", "--http1.1", "--noproxy", "*", "--max-time", str(SECONDS), "--write-out", "%{exitcode} %{response_code}\\n"]
        command = ["curl"]
        for number, url in enumerate(urls):
            command += ["--next"] * (number > 0) + options
            command += ["--dump-header", f"{directory}/head{number}", "--output", f"{directory}/body{number}", url]
        outcome = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.split(b"\n")
        results = []
        for number in range(len(urls)):
            code, _, status = outcome[number].partition(b" ")
            head, body = (Path(directory, f"{part}{number}") for part in ("head", "body"))
            # The head of the last response: informational ones precede it, and trailers follow.
            parts = head.read_bytes().split(b"\r\n\r\n") if head.exists() else []
            last = next((part for part in reversed(parts) if part.startswith(b"HTTP/")), b"")
            lines = [line.partition(b":") for line in last.split(b"\r\n")[1:]]
            fields = [(name, value.strip()) for name, _, value in lines]
            body = body.read_bytes() if body.exists() else b""
            results.append("E" if code != b"0" else seen(int(status), fields, body))
        return results


def each(get, urls):
    results = []
    for url in urls:
        try:
            results.append(get(url))
        except Exception:
            results.append("E")
    return results


def main():
    client = {"requests": with_requests, "httpx": with_httpx, "aiohttp": with_aiohttp, "curl": with_curl}[sys.argv[1]]

    def visit(line):
        number, base = line.split()
        responses = client([f"{base}/q{number}-r", f"{base}/q{number}-ok"])
        with LOCK:
            print("C", number, *responses, flush=True)

    with concurrent.futures.ThreadPoolExecutor(32) as threads:
        for line in sys.stdin:
            threads.submit(visit, line)


main()
