// Figures over time. The gateway counts from its start; rates are differences between two moments. One minute of moments is
// kept for the figures of now, and the history for the charts.
import type { History, Histogram, ProviderStats, Quantile, Stats, StatusClass } from "./api";

export const PERIOD_MS = 1000;
export const WINDOW_MS = 30_000; // for shares and quantiles
const RATE_MS = 3_000; // for the rates shown as numbers
const KEPT_MS = 61_000;
const HISTORY_STEP_MS = 2_000;
const HISTORY_STEPS_MAX = 1800;
export const CLASSES: StatusClass[] = ["2xx", "3xx", "4xx", "5xx", "none"];
const QUANTILES: [Quantile, number][] = [["p50", 0.5], ["p90", 0.9], ["p99", 0.99]];

export interface Moment {
  at: number;
  stats: Stats;
}

export const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);
export const label = (provider: ProviderStats) => provider.host ?? provider.name;
export const shownName = (name: string) => (name === "-" ? "other hosts" : name);
export const exchanges = (provider: ProviderStats | undefined) => sum((provider?.exchanges ?? []).map((each) => each.count));
export const find = (stats: Stats | undefined, name: string) => stats?.providers.find((provider) => label(provider) === name);
export const total = (stats: Stats) => sum(stats.providers.map(exchanges));
export const generated = (provider: ProviderStats | undefined) => sum((provider?.generated ?? []).map((each) => each.count));
export const allGenerated = (stats: Stats) => sum(stats.providers.map(generated));
export const allStored = (stats: Stats) => sum(stats.providers.map((provider) => provider.stored ?? 0));

const ofClass = (provider: ProviderStats | undefined, status: string) =>
  sum((provider?.exchanges ?? []).filter((each) => each.status === status).map((each) => each.count));
const generatedOf = (provider: ProviderStats | undefined, status: string) =>
  provider?.generated?.find((each) => each.name === status)?.count ?? 0;

/** The responses of a provider itself that are no success: 5xx, and calls without a response. */
export const failures = (provider: ProviderStats | undefined) =>
  sum(["5xx", "none"].map((status) => ofClass(provider, status) - generatedOf(provider, status)));

/** The shares of a provider's exchanges: its own responses by status class, Egret's, and those from a cache. */
export interface Answers {
  total: number;
  provider: [StatusClass, number][];
  egret: number;
  cache: number;
}

export class Moments {
  private readonly moments: Moment[] = [];

  /** Adds a moment; starts over if the gateway was restarted. */
  add(stats: Stats, at: number): void {
    if (stats.uptime_s < (this.moments.at(-1)?.stats.uptime_s ?? 0)) this.moments.length = 0;
    this.moments.push({ at, stats });
    while (this.moments.length > 2 && this.moments[0]!.at < at - KEPT_MS) this.moments.shift();
  }

  get now(): Moment {
    return this.moments.at(-1)!;
  }

  /** Returns the oldest moment of the last `span` ms; in a tab throttled by the browser, the last but one. */
  past(span: number): Moment {
    const since = this.now.at - span - PERIOD_MS / 2;
    const index = this.moments.findIndex(({ at }) => at >= since);
    return this.moments[Math.max(0, Math.min(index, this.moments.length - 2))]!;
  }

  /** Returns the recent growth per second of a counter. */
  rate(read: (stats: Stats) => number, span = RATE_MS): number {
    const [then, now] = [this.past(span), this.now];
    return now.at > then.at ? Math.max(0, (1000 * (read(now.stats) - read(then.stats))) / (now.at - then.at)) : 0;
  }

  /** Returns the growth of a counter over the window. */
  growth(read: (stats: Stats) => number): number {
    return Math.max(0, read(this.now.stats) - read(this.past(WINDOW_MS).stats));
  }

  /** Returns the growth per second at each kept moment, averaged over three moments so single calls do not flicker. */
  rates(read: (stats: Stats) => number): number[] {
    return this.moments.slice(1).map(({ at, stats }, index) => {
      const then = this.moments[Math.max(0, index - 2)]!;
      return Math.max(0, (1000 * (read(stats) - read(then.stats))) / (at - then.at));
    });
  }

  answers(name: string): Answers {
    const [now, then] = [find(this.now.stats, name), find(this.past(WINDOW_MS).stats, name)];
    const grown = (read: (of: ProviderStats | undefined) => number) => Math.max(0, read(now) - read(then));
    const cache = grown((of) => of?.stored ?? 0);
    const egret = grown(generated);
    const own = CLASSES.map((status): [StatusClass, number] => [
      status,
      grown((of) => ofClass(of, status) - generatedOf(of, status)),
    ]);
    // Responses from a cache are counted by status too; most are successes.
    own[0]![1] = Math.max(0, own[0]![1] - cache);
    return { total: grown(exchanges), provider: own, egret, cache };
  }

  /** Returns quantiles over the window, or since start if nothing was added. */
  quantiles(name: string, kind: "latency" | "footprint"): Record<Quantile, number | null> {
    const [now, then] = [find(this.now.stats, name), find(this.past(WINDOW_MS).stats, name)];
    return quantiles(recent(now?.[kind], then?.[kind]), this.now.stats.bounds_us);
  }
}

function recent(now: Histogram | undefined, then: Histogram | undefined): number[] {
  const buckets = now?.buckets ?? [];
  const grown = buckets.map((count, index) => Math.max(0, count - (then?.buckets[index] ?? 0)));
  return sum(grown) > 0 ? grown : buckets;
}

function quantiles(buckets: number[], bounds: number[]): Record<Quantile, number | null> {
  const entries = QUANTILES.map(([name, share]) => [name, quantile(buckets, share, bounds)]);
  return Object.fromEntries(entries) as Record<Quantile, number | null>;
}

/** Returns a quantile in microseconds, assuming that counts are evenly spread within a bucket. */
function quantile(buckets: number[], share: number, bounds: number[]): number | null {
  const rank = share * sum(buckets);
  if (rank === 0) return null;
  let seen = 0;
  for (const [index, count] of buckets.entries()) {
    if (seen + count >= rank && count > 0) {
      const low = index ? bounds[index - 1]! : 0;
      return low + ((bounds[index] ?? low) - low) * ((rank - seen) / count);
    }
    seen += count;
  }
  return null;
}

type ProviderHistory = History["providers"][number];
const STATUS_CLASSES: StatusClass[] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];
const KINDS = ["latency_us", "footprint_us"] as const;

/** The history since this page was opened, for a gateway that keeps none. */
export class OwnHistory {
  private last: Moment | null = null;
  private readonly history: History = { step_s: HISTORY_STEP_MS / 1000, times_s: [], generated: [], providers: [] };

  get view(): History {
    return this.history;
  }

  add(stats: Stats, at: number): void {
    const last = this.last;
    if (last && at - last.at < HISTORY_STEP_MS - PERIOD_MS / 2) return;
    this.last = { at, stats };
    // A restarted gateway counts from zero.
    if (last && stats.uptime_s >= last.stats.uptime_s) this.push(stats, last.stats);
  }

  private push(now: Stats, before: Stats): void {
    const { times_s, generated, providers } = this.history;
    for (const provider of now.providers) {
      const own = (known: ProviderHistory) => (known.host ?? known.provider) === label(provider);
      let column = providers.find(own);
      if (!column) providers.push((column = emptyColumns(provider, times_s.length)));
      pushStep(column, provider, find(before, label(provider)), now.bounds_us);
    }
    times_s.push(Date.now() / 1000);
    generated.push(Math.max(0, allGenerated(now) - allGenerated(before)));
    const columns = [times_s, generated, ...providers.flatMap(columnsOf)];
    for (const column of columns) {
      while (column.length < times_s.length) (column as (number | null)[]).push(null);
      if (column.length > HISTORY_STEPS_MAX) column.shift();
    }
  }
}

function columnsOf(provider: ProviderHistory): (number | null)[][] {
  return [provider.statuses, provider.latency_us, provider.footprint_us].flatMap((columns) => Object.values(columns) as (number | null)[][]);
}

function emptyColumns(provider: ProviderStats, steps: number): ProviderHistory {
  const filled = <T, N extends string>(names: readonly N[], value: T) =>
    Object.fromEntries(names.map((name) => [name, Array<T>(steps).fill(value)])) as Record<N, T[]>;
  const names = QUANTILES.map(([name]) => name);
  return {
    provider: provider.name,
    host: provider.host ?? null,
    statuses: filled(STATUS_CLASSES, 0),
    latency_us: filled<number | null, Quantile>(names, null),
    footprint_us: filled<number | null, Quantile>(names, null),
  };
}

function pushStep(column: ProviderHistory, now: ProviderStats, before: ProviderStats | undefined, bounds: number[]): void {
  for (const status of STATUS_CLASSES) {
    column.statuses[status].push(Math.max(0, ofClass(now, status) - ofClass(before, status)));
  }
  for (const kind of KINDS) {
    const histogram = kind === "latency_us" ? "latency" : "footprint";
    const grown = now[histogram].buckets.map((count, index) => count - (before?.[histogram].buckets[index] ?? 0));
    const times = quantiles(grown, bounds);
    for (const [name] of QUANTILES) column[kind][name].push(times[name]);
  }
}
