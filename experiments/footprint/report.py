"""What was measured, as a table, a verdict on the figures to hold, a CSV, a chart and the run's metadata."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chart import Bar, Panel, draw

RESAMPLES = 2000


@dataclass(frozen=True)
class Measurement:
    """One subject's turn in one round. None: there is no proxy to look at."""

    round: int
    subject: str
    cpu_us_per_request: float | None
    requests_per_second: float
    load_p50_us: float
    load_p99_us: float
    rate_p50_us: float
    rate_p99_us: float
    memory_mib: float | None
    errors: int
    origin_connections: int
    """Connections that the origin accepted during the turn: tells whether the proxy kept its own."""


@dataclass(frozen=True)
class Metric:
    """A column of the table."""

    field: str
    title: str
    digits: int


CPU = Metric("cpu_us_per_request", "CPU µs/req", 2)
LOAD_P99 = Metric("load_p99_us", "p99 µs loaded", 0)
RATE_P50 = Metric("rate_p50_us", "p50 µs at rate", 0)
RATE_P99 = Metric("rate_p99_us", "p99 µs at rate", 0)
METRICS = [
    CPU,
    Metric("requests_per_second", "requests/s", 0),
    Metric("load_p50_us", "p50 µs loaded", 0),
    LOAD_P99,
    RATE_P50,
    RATE_P99,
    Metric("memory_mib", "memory MiB", 1),
]


@dataclass(frozen=True)
class Hold:
    """A figure to hold: Egret's metric against a peer's, as a ratio or as a difference."""

    text: str
    metric: Metric
    peer: str
    limit: float
    difference: bool = False


HOLDS = [
    Hold("CPU per request ÷ byte relay (goal 1.10)", CPU, "relay", 1.15),
    Hold("CPU per request ÷ nginx", CPU, "nginx", 0.90),
    Hold("CPU per request ÷ HAProxy", CPU, "haproxy", 0.75),
    Hold("CPU per request ÷ Envoy", CPU, "envoy", 0.30),
    Hold("p99 under load ÷ nginx", LOAD_P99, "nginx", 1.00),
    Hold("p99 at the fixed rate ÷ nginx", RATE_P99, "nginx", 1.00),
    Hold("p50 at the fixed rate, added to direct, µs", RATE_P50, "direct", 100, difference=True),
    Hold("p99 at the fixed rate, added to direct, µs", RATE_P99, "direct", 250, difference=True),
]


@dataclass(frozen=True)
class Estimate:
    """A median over rounds, and where other rounds of the same kind would put it, with a confidence of 95 %."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Bootstraps the median. The draws are the same each time, so that the same rounds give the same interval."""
        draw = random.Random(0)
        medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
        return cls(median(values), medians[RESAMPLES // 40], medians[-1 - RESAMPLES // 40])

    def shown(self, digits: int) -> str:
        """`0.87 [0.85–0.90]`"""
        middle, low, high = (f"{value:.{digits}f}" for value in (self.middle, self.low, self.high))
        return middle if low == high else f"{middle} [{low}–{high}]"


class Results:
    """All turns of a run."""

    def __init__(self, titles: dict[str, str]) -> None:
        self.titles = titles
        self.measurements: list[Measurement] = []

    def add(self, measurement: Measurement) -> None:
        """Takes in one turn."""
        self.measurements.append(measurement)

    def values(self, subject: str, metric: Metric) -> list[float]:
        """A subject's figures, a round each, in the order of rounds."""
        turns = sorted((m for m in self.measurements if m.subject == subject), key=lambda m: m.round)
        found = [getattr(turn, metric.field) for turn in turns]
        return [value for value in found if value is not None]

    def compared(self, metric: Metric, peer: str, *, difference: bool = False) -> Estimate | None:
        """Egret against a peer: taken within each round, so that drift of the machine cancels, then the median."""
        pairs = list(zip(self.values("egret", metric), self.values(peer, metric), strict=False))
        if not pairs:
            return None
        return Estimate.of([own - other if difference else own / other for own, other in pairs])

    def table(self) -> str:
        """Medians over the rounds with the spread from least to most, then Egret's ratio to each."""
        rows = [["", *(metric.title for metric in METRICS)]]
        for subject, title in self.titles.items():
            rows.append([title, *(_spread(self.values(subject, metric), metric.digits) for metric in METRICS)])
        peers = [peer for peer in self.titles if peer not in ("egret", "direct")]
        for peer in peers if "egret" in self.titles else []:
            ratios = (self.compared(metric, peer) for metric in METRICS)
            rows.append([f"Egret ÷ {self.titles[peer]}", *("–" if r is None else r.shown(2) for r in ratios)])
        return _aligned(rows)

    def verdict(self) -> str:
        """Each figure to hold, with pass or FAIL, and whether the run is long enough to be sure of it."""
        lines = []
        for hold in HOLDS:
            estimate = self.compared(hold.metric, hold.peer, difference=hold.difference)
            if estimate is None:
                continue
            digits = 0 if hold.difference else 2
            word = "pass" if estimate.middle <= hold.limit else "FAIL"
            doubt = ", not surely" if estimate.low <= hold.limit < estimate.high else ""
            lines.append(f"  {word}  {hold.text}: {estimate.shown(digits)} (hold ≤ {hold.limit:.{digits}f}{doubt})")
        return "\n".join(lines)

    def warnings(self) -> str:
        """What makes a figure doubtful."""
        lines = []
        for subject, title in self.titles.items():
            errors = sum(m.errors for m in self.measurements if m.subject == subject)
            if errors:
                lines.append(f"  {title}: {errors} requests failed")
        return "\n".join(lines)

    def write(self, directory: Path, metadata: dict[str, object]) -> None:
        """Puts footprint.csv, footprint.svg and metadata.json into `directory`."""
        text = io.StringIO()
        names = [field.name for field in dataclasses.fields(Measurement)]
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_rounded(measurement) for measurement in self.measurements)
        (directory / "footprint.csv").write_text(text.getvalue())
        (directory / "metadata.json").write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n")
        (directory / "footprint.svg").write_text(self._chart(str(metadata["title"]), str(metadata["subtitle"])))

    def _chart(self, title: str, subtitle: str) -> str:
        panels = [
            self._panel("CPU time per request, µs (less is better)", METRICS[0]),
            self._panel("Requests per second (more is better)", METRICS[1]),
            self._panel("p99 at the fixed rate, µs (less is better)", RATE_P99),
            self._panel("Memory under load, MiB (less is better)", METRICS[6]),
        ]
        return draw(title, subtitle, panels)

    def _panel(self, title: str, metric: Metric) -> Panel:
        bars = []
        for subject, name in self.titles.items():
            values = self.values(subject, metric)
            if values:
                bars.append(Bar(name, median(values), min(values), max(values), subject == "egret"))
        return Panel(title, bars, metric.digits)


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    middle, least, most = (f"{value:,.{digits}f}" for value in (median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least}–{most})"


def _rounded(measurement: Measurement) -> dict[str, object]:
    fields = dataclasses.asdict(measurement)
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *rest]))
    return "\n".join(lines)
