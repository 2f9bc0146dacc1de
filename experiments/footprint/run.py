"""`make footprint`: what each proxy costs for the same work, in one interleaved run on this machine.

Every round gives every subject one turn: a warm-up, a window at full load (requests per second, latency, CPU time of
the proxy per request, memory), and a window at a fixed rate (latency as a client at ease sees it). Rounds change the
order, so that no subject always follows the same one, and figures are compared within a round. The proxy has a core of
its own; load and origin share another.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from cases import CASES, Case
from load import run_load, run_probe
from process import Process
from report import Measurement, Results
from subjects import SUBJECTS, Origin, Setup, Subject

WARM_UP_SECONDS = 1


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    case: Case
    rounds: int
    seconds: int
    tools: Path
    egret: Path
    envoy: Path
    results: Path


@dataclass(frozen=True)
class Runner:
    """A subject that stands and can be given a turn."""

    subject: Subject
    process: Process | None


def parse_options() -> Options:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, default="get", help="the kind of work (get)")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each subject (10)")
    parser.add_argument("--seconds", type=int, default=3, help="length of each window (3)")
    parser.add_argument("--quick", action="store_true", help="one round of 1 s: shows that it works, measures nothing")
    parser.add_argument("--tools", type=Path, required=True, help="where relay and probe are")
    parser.add_argument("--egret", type=Path, required=True, help="Egret's release binary")
    parser.add_argument("--envoy", type=Path, required=True, help="Envoy's binary")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where to put a folder with the results")
    given = parser.parse_args()
    if given.rounds < 1 or given.seconds < 1:
        parser.error("--rounds and --seconds start at 1")
    rounds, seconds = (1, 1) if given.quick else (given.rounds, given.seconds)
    paths = (path.resolve() for path in (given.tools, given.egret, given.envoy, given.results))
    return Options(CASES[given.case], rounds, seconds, *paths)


def main() -> int:
    """Runs it all; every process that was started is gone when it returns, however it returns."""
    options = parse_options()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    allow_many_files()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="egret-footprint-")))
        setup = make_setup(options, directory)
        origin = Origin(setup)
        stack.enter_context(origin.process)
        runners = start_subjects(setup, origin, stack)
        versions = {runner.subject.name: runner.subject.version() for runner in runners}
        metadata = describe(options, setup, versions)
        results = Results({runner.subject.name: runner.subject.title for runner in runners})
        try:
            measure(options, setup, origin, runners, results)
        except KeyboardInterrupt:
            print("\nStopped.")
            return 130
    show(options, results, metadata)
    return 0


def make_setup(options: Options, directory: Path) -> Setup:
    """Decides who runs where."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("Only one core: proxy, load and origin share it, and the figures say little.")
    return Setup(
        case=options.case,
        directory=directory,
        relay=options.tools / "relay",
        egret=options.egret,
        envoy=options.envoy,
        load_core=cores[0],
        proxy_core=cores[min(1, len(cores) - 1)],
    )


def start_subjects(setup: Setup, origin: Origin, stack: ExitStack) -> list[Runner]:
    """Starts all that are there; the rest is named and left out."""
    runners = []
    for kind in SUBJECTS:
        subject = kind(setup, origin)
        reason = subject.missing()
        if reason:
            print(f"  left out: {subject.title} ({reason})")
            continue
        process = subject.start()
        if process:
            stack.enter_context(process)
        runners.append(Runner(subject, process))
    return runners


def measure(options: Options, setup: Setup, origin: Origin, runners: list[Runner], results: Results) -> None:
    """All rounds, with a line for each turn and the time left."""
    started = time.monotonic()
    turns = options.rounds * len(runners)
    planned = clock(turns * (WARM_UP_SECONDS + 2 * options.seconds))
    print(f"{options.case.title}: {len(runners)} subjects, {options.rounds} × {options.seconds} s, about {planned}")
    done = 0
    for number in range(options.rounds):
        for runner in order(runners, number):
            turn = take_turn(options, setup, origin, runner, number + 1)
            results.add(turn)
            done += 1
            left = (time.monotonic() - started) / done * (turns - done)
            print(f"  {number + 1}/{options.rounds}  {line(runner, turn)}  {clock(left)} left", flush=True)


def order(runners: list[Runner], number: int) -> list[Runner]:
    """Starts each round with another subject, and goes backwards every other time."""
    shift = number % len(runners)
    rotated = runners[shift:] + runners[:shift]
    return rotated[::-1] if number % 2 else rotated


def take_turn(options: Options, setup: Setup, origin: Origin, runner: Runner, number: int) -> Measurement:
    """Warm-up, full load, fixed rate."""
    case, port, core = options.case, runner.subject.port, setup.load_core
    process = runner.process
    run_load(case, port, WARM_UP_SECONDS, core, setup.directory)
    accepted = origin.connections()
    cpu_before = process.cpu_seconds() if process else 0.0
    load = run_load(case, port, options.seconds, core, setup.directory)
    cpu = process.cpu_seconds() - cpu_before if process else 0.0
    memory = process.memory_bytes() if process else 0
    accepted = origin.connections() - accepted - 1  # the second count came over a connection of its own
    rate = run_probe(case, port, options.seconds, core, options.tools / "probe")
    return Measurement(
        round=number,
        subject=runner.subject.name,
        cpu_us_per_request=cpu / max(load.requests, 1) * 1e6 if process else None,
        requests_per_second=load.requests_per_second,
        load_p50_us=load.p50_us,
        load_p99_us=load.p99_us,
        rate_p50_us=rate.p50_us,
        rate_p99_us=rate.p99_us,
        memory_mib=memory / 2**20 if process else None,
        errors=load.errors + rate.errors,
        origin_connections=accepted,
    )


def line(runner: Runner, turn: Measurement) -> str:
    """A turn on one line."""
    cpu = "    –" if turn.cpu_us_per_request is None else f"{turn.cpu_us_per_request:5.1f}"
    return (
        f"{runner.subject.title:10}  {cpu} µs/req  {turn.requests_per_second:7,.0f}/s  "
        f"p99 {turn.load_p99_us:6,.0f} µs loaded, {turn.rate_p99_us:5,.0f} µs at {runner.subject.setup.case.rate}/s"
        + (f"  {turn.errors} FAILED" if turn.errors else "")
    )


def describe(options: Options, setup: Setup, versions: dict[str, str]) -> dict[str, object]:
    """All that somebody needs to judge or repeat the run."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    commit = output("git", "describe", "--always", "--dirty", "--abbrev=12")
    cpu = cpu_model()
    return {
        "title": f"Footprint: {options.case.title}",
        "subtitle": f"{cpu}, {os.cpu_count()} cores, {now:%Y-%m-%d}, {commit}: "
        f"median of {options.rounds} rounds, least to most",
        "time": now.isoformat(),
        "commit": commit,
        "command": shlex.join(sys.argv),
        "case": vars(options.case),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "warm_up_seconds": WARM_UP_SECONDS,
        "proxy_core": setup.proxy_core,
        "load_core": setup.load_core,
        "kernel": platform.release(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load_average_before": os.getloadavg()[0],
        "versions": {**versions, "wrk": output("wrk", "-v"), "cc": output("cc", "--version")},
    }


def show(options: Options, results: Results, metadata: dict[str, object]) -> None:
    """Prints the table and the verdict, and writes the files."""
    rounds = f"median over {options.rounds} rounds (least–most) [95 % confidence]"
    print(f"\n{options.case.title}; {rounds}\n\n{results.table()}\n")
    if results.warnings():
        print(f"Doubtful:\n{results.warnings()}\n")
    if options.case.name == "get" and results.verdict():
        print(f"Figures to hold:\n{results.verdict()}\n")
    directory = options.results / f"footprint-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}"
    directory.mkdir(parents=True)
    results.write(directory, metadata)
    print(f"Written: {directory}/footprint.csv, footprint.svg, metadata.json")


def clock(seconds: float) -> str:
    """`3m05s`"""
    return f"{int(seconds) // 60}m{int(seconds) % 60:02}s"


def output(*command: str) -> str:
    """The first line that a command prints, or `unknown`."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"


def cpu_model() -> str:
    """The processor's name."""
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.machine()


def allow_many_files() -> None:
    """Raises the limit of open files for all that is started from here."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
