"""A program under measurement: pinned to a core, its CPU time and memory read from /proc, gone when the run is over."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STOP_SECONDS = 3.0


class Process:
    """A program and all that it starts, in a process group of its own."""

    def __init__(self, name: str, command: list[str], core: int, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.out"
        with self.log.open("wb") as log:
            self._popen = subprocess.Popen(
                ["taskset", "-c", str(core), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                start_new_session=True,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the program that was started is still there."""
        return self._popen.poll() is None

    def log_tail(self, lines: int = 15) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def cpu_seconds(self) -> float:
        """User and system time of the whole group since it started, all threads and ended threads included."""
        ticks = 0
        for fields in self._members():
            ticks += int(fields[11]) + int(fields[12])  # utime, stime
        return ticks / TICKS_PER_SECOND

    def memory_bytes(self) -> int:
        """Proportional set size of the group: pages that workers share with their master count once."""
        total = 0
        for fields in self._members():
            total += _pss_bytes(int(fields[-1]))
        return total

    def stop(self) -> None:
        """Ends the group: its leader is asked to, and what is left is made to."""
        if self.running:
            self._popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def _members(self) -> list[list[str]]:
        """The fields of /proc/PID/stat after the command's name, and the PID, for each process of the group."""
        members = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = path.read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
            fields = text.rpartition(")")[2].split()
            if int(fields[2]) == self._popen.pid:
                members.append([*fields, path.parent.name])
        return members


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def wait_until(what: str, ready: Callable[[], bool], process: Process, seconds: float = 10.0) -> None:
    """Polls `ready()` until it holds; raises with the program's own words if it ends or takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ready():
            return
        if not process.running:
            raise RuntimeError(f"{process.name} ended instead of {what}:\n{process.log_tail()}")
        time.sleep(0.02)
    raise RuntimeError(f"{process.name} was not {what} after {seconds:.0f} s:\n{process.log_tail()}")
