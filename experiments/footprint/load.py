"""Sending the work: wrk or ab for throughput, the probe for latency at a fixed rate."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cases import Case

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Load:
    """What a load client saw in one window."""

    requests: int
    requests_per_second: float
    p50_us: float
    p99_us: float
    errors: int


@dataclass(frozen=True)
class Probe:
    """Latency at a fixed rate, from the moment each request was due."""

    p50_us: float
    p99_us: float
    errors: int


def run_load(case: Case, port: int, seconds: int, core: int, directory: Path) -> Load:
    """As many requests as go through in `seconds`."""
    url = f"http://127.0.0.1:{port}{case.path}"
    return _ab(case, url, seconds, core, directory) if case.fresh else _wrk(case, url, seconds, core)


def run_probe(case: Case, port: int, seconds: int, core: int, probe: Path) -> Probe:
    """`case.rate` requests per second, however long they take."""
    mode = "fresh" if case.fresh else "keep"
    numbers = [case.body_bytes, case.rate, seconds, case.probe_connections]
    output = _run([str(probe), str(port), case.path, *map(str, numbers), mode], seconds, core)
    seen = json.loads(output)
    return Probe(seen["p50_us"], seen["p99_us"], seen["errors"])


def _wrk(case: Case, url: str, seconds: int, core: int) -> Load:
    command = ["wrk", "-t1", f"-c{case.connections}", f"-d{seconds}s", "-s", str(HERE / "load.lua"), url]
    output = _run([*command, "--", str(case.body_bytes)], seconds, core)
    seen = json.loads(output.splitlines()[-1])
    rate = seen["requests"] / (seen["duration_us"] / 1e6)
    return Load(seen["requests"], rate, seen["p50_us"], seen["p99_us"], seen["errors"])


def _ab(case: Case, url: str, seconds: int, core: int, directory: Path) -> Load:
    percentiles = directory / "ab.csv"
    # -n after -t, which would set it to 50,000; it is only the bound of ab's memory.
    limits = ["-t", str(seconds), "-n", str(seconds * 100_000), "-c", str(case.connections)]
    output = _run(["ab", "-q", "-S", *limits, "-e", str(percentiles), url], seconds, core)
    served = dict(line.split(",") for line in percentiles.read_text().splitlines()[1:])
    errors = _figure(r"Failed requests: +(\d+)", output) + _figure(r"Non-2xx responses: +(\d+)", output)
    requests = _figure(r"Complete requests: +(\d+)", output)
    rate = requests / float(re.findall(r"Time taken for tests: +([\d.]+)", output)[0])
    return Load(int(requests), rate, float(served["50"]) * 1000, float(served["99"]) * 1000, int(errors))


def _figure(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _run(command: list[str], seconds: int, core: int) -> str:
    pinned = ["taskset", "-c", str(core), *command]
    done = subprocess.run(pinned, capture_output=True, text=True, timeout=seconds + 30, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout
