"""The kinds of work that are sent through every subject."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One kind of work: what is asked for, and how hard."""

    name: str
    title: str
    path: str = "/"
    response_bytes: int = 109
    body_bytes: int = 0
    """Size of the request's body; more than 0 makes it a POST."""
    fresh: bool = False
    """A client connection for each request (load by ab, which speaks HTTP/1.0), rather than kept ones (load by wrk)."""
    origin_tls: bool = False
    """Whether proxies speak TLS to the origin. Direct traffic stays plain, and a byte relay has no part in it."""
    connections: int = 100
    rate: int = 500
    """Requests per second of the latency probe."""
    probe_connections: int = 8


CASES = {
    case.name: case
    for case in (
        Case("get", "GET of 109 bytes, kept connections"),
        Case("noreuse", "GET of 109 bytes, a client connection for each", fresh=True),
        Case("post8k", "POST of 8 KiB, kept connections", body_bytes=8 * 1024),
        Case("bytes1m", "GET of 1 MiB", path="/1m", response_bytes=1024 * 1024, connections=16, rate=50),
        Case("tls", "GET of 109 bytes, origin over TLS", origin_tls=True),
    )
}
