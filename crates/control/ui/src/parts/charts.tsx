// Charts: lines over time by uPlot, and small ones as SVG.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { Cell, useCell } from "../cell";
import { clock } from "../format";
import { findings } from "../live";

export interface Line {
  label: string;
  /** Name of a colour in the style sheet. */
  color: string;
  values: (number | null)[];
  fill?: boolean;
}

interface Props {
  label: string;
  times: number[];
  lines: Line[];
  height?: number;
  format: (value: number) => string;
  logarithmic?: boolean;
}

const TICKS_S = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600];

/** Counts changes of the colours, which charts have to read again. */
export const theme = new Cell(0);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (theme.value += 1));

/** Returns a colour of the style sheet as it is now. */
function color(name: string, alpha = 1): string {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const text = getComputedStyle(probe).color;
  probe.remove();
  const parts = text.match(/[\d.]+/g) ?? ["0", "0", "0"];
  return `rgba(${parts.slice(0, 3).join(", ")}, ${alpha})`;
}

/** The colours of the events that charts draw. The end of a finding is not one of them. */
const EVENT_COLORS: Record<string, string> = { started: "soft", "config-applied": "own", began: "server" };

/** Draws a line for each event that the chart has room for. */
function drawEvents(plot: uPlot): void {
  const { ctx, bbox, scales } = plot;
  const [min, max] = [scales["x"]?.min ?? 0, scales["x"]?.max ?? 0];
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { at_us, what } of findings.value?.events ?? []) {
    const [at, name] = [at_us / 1e6, EVENT_COLORS[what]];
    if (name === undefined || at < min || at > max) continue;
    const x = Math.round(plot.valToPos(at, "x", true));
    ctx.strokeStyle = color(name);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** Lines over time. The figures under the pointer stand in the legend, which keyboards do not need: tables have them. */
export function Chart({ label, times, lines, height = 170, format, logarithmic = false }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const changes = useCell(theme);
  const names = lines.map((line) => line.label).join();
  const data = [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const element = place.current!;
    const axis = { stroke: color("soft"), grid: { stroke: color("edge"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const plot = new uPlot(
      {
        width: element.clientWidth || 300,
        height,
        padding: [8, 24, 0, 0],
        cursor: { y: false, points: { size: 6 } },
        legend: { live: true },
        hooks: { draw: [drawEvents] },
        scales: { y: logarithmic ? { distr: 3, log: 10 } : { range: (_, __, max) => [0, Math.max(max * 1.1, 1e-3)] } },
        axes: [
          {
            ...axis,
            values: (_, splits) => splits.map((at) => clock(new Date(at * 1000)).replace(/:00$/, "")),
            space: 80,
            size: 30,
            incrs: TICKS_S,
          },
          { ...axis, values: (_, splits) => splits.map((value) => (value == null ? "" : format(value))), size: 70, space: 28 },
        ],
        series: [
          { label: "Time", value: (_, at) => (at == null ? "now" : clock(new Date(at * 1000))) },
          ...lines.map((line) => ({
            label: line.label,
            stroke: color(line.color),
            width: 1.75,
            ...(line.fill ? { fill: color(line.color, 0.13) } : {}),
            points: { show: false },
            spanGaps: true,
            value: (_: uPlot, value: number | null) => (value == null ? "–" : format(value)),
          })),
        ],
      },
      data,
      element,
    );
    chart.current = plot;
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
    // Other lines or colours need another chart; new data only needs `setData`.
  }, [names, changes, height, logarithmic]);

  useEffect(() => {
    const plot = chart.current;
    plot?.setData(data);
    // Without a pointer, the legend has the last figures.
    if (plot && plot.cursor.idx == null) plot.setLegend({ idx: times.length - 1 }, false);
  });
  const last = lines.map((line) => `${line.label} ${format(line.values.findLast((value) => value != null) ?? 0)}`);
  return <div class="chart" ref={place} role="img" aria-label={`${label}. Last: ${last.join(", ")}`} />;
}

/** A small line without axes, as wide as its place. */
export function Spark({ values }: { values: number[] }) {
  const top = Math.max(...values, 1e-9);
  const step = 60 / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)} ${(19.5 - (18.5 * value) / top).toFixed(2)}`);
  const line = points.length > 1 ? `M${points.join("L")}` : "";
  return (
    <svg class="spark" viewBox="0 0 60 20" preserveAspectRatio="none" aria-hidden="true">
      <path class="area" d={line && `${line}L60 20L0 20Z`} />
      <path class="line" d={line} />
    </svg>
  );
}

/** A bar of shares. `parts` are class names and sizes. */
export function Stack({ parts }: { parts: [string, number][] }) {
  return (
    <div class="stack" aria-hidden="true">
      {parts.filter(([, size]) => size > 0).map(([name, size]) => (
        <i key={name} class={name} style={{ flexGrow: String(size) }} />
      ))}
    </div>
  );
}

/** Two bars on one logarithmic scale: the median within the 99th percentile. */
export function Span({ p50, p99, scale: [low, high] }: { p50: number | null; p99: number | null; scale: [number, number] }) {
  const width = (us: number | null) =>
    us === null ? "0" : `${100 * Math.min(1, Math.max(0.02, Math.log(us / low) / Math.log(high / low)))}%`;
  return (
    <div class="span" aria-hidden="true">
      <i class="p99" style={{ width: width(p99) }} />
      <i class="p50" style={{ width: width(p50) }} />
    </div>
  );
}
