// Live traffic: the exchanges as they end, read from a stream by `fetch`, since `EventSource` cannot send the token.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, call, type Exchange, type TrafficStatus } from "../api";
import { bytes, day, number, plural, time, whole, zone } from "../format";
import { usePoll } from "../live";
import { Card, Empty, Message, Pill, type Tone, Trouble } from "../parts/basics";
import { type Column, Table } from "../parts/table";
import { link, route } from "../route";
import { useCell } from "../cell";

const SHOWN_MAX = 200;
const FAILURES_SHOWN = 10;
const FAILURES_PERIOD_MS = 3000;
const DRAW_MS = 250;
/** Times by which the pause after a drawing is longer than the drawing. */
const SHARE = 4;
/** The beginning of the line of an exchange. */
const EXCHANGE = '{"type":"exchange"';
const RECONNECT_MS = 2000;

/** The filters, in the terms of the API. */
const FILTERS: { key: string; label: string; placeholder: string }[] = [
  { key: "provider", label: "Provider", placeholder: "stripe" },
  { key: "host", label: "Host", placeholder: "*.example.com" },
  { key: "path", label: "Path", placeholder: "/v1/*" },
  { key: "method", label: "Method", placeholder: "GET, POST" },
  { key: "status", label: "Status", placeholder: "5xx, 429, none" },
  { key: "answered_by", label: "Answered by", placeholder: "egret, cache" },
  { key: "flow", label: "Flow", placeholder: "charges" },
  { key: "error", label: "Error", placeholder: "circuit-open" },
  { key: "consumer", label: "Consumer", placeholder: "billing" },
  { key: "slower_than", label: "Slower than", placeholder: "500ms" },
];

interface Stream {
  exchanges: Exchange[];
  status: TrafficStatus | null;
  lost: number;
  error: Error | null;
  isConnected: boolean;
}

const EMPTY: Stream = { exchanges: [], status: null, lost: 0, error: null, isConnected: false };

/** Reads the stream while the component is shown. A pause only stops the drawing. */
function useStream(query: string, paused: boolean): Stream & { again: () => void } {
  const [shown, show] = useState<Stream>(EMPTY);
  const [attempt, setAttempt] = useState(0);
  const isPaused = useRef(paused);
  isPaused.current = paused;
  useEffect(() => {
    const controller = new AbortController();
    const stream = { ...EMPTY };
    // Lines that were not drawn yet, the oldest first. Only those that are drawn are parsed.
    let lines: string[] = [];
    let isChanged = true;
    let timer = 0;
    let [next, frame] = [0, 0];
    // Draws no more often than the browser can, so that most of the time is left for the reader. A hidden
    // page draws nothing.
    const draw = () => {
      if (!isChanged || isPaused.current) {
        next = window.setTimeout(draw, DRAW_MS);
        return;
      }
      const begun = performance.now();
      isChanged = false;
      const drawn = lines.slice(-SHOWN_MAX).reverse().map((line) => JSON.parse(line) as Exchange);
      lines = [];
      stream.exchanges = [...drawn, ...stream.exchanges].slice(0, SHOWN_MAX);
      show({ ...stream });
      frame = requestAnimationFrame(() => {
        next = window.setTimeout(() => {
          next = window.setTimeout(draw, Math.max(DRAW_MS, SHARE * (performance.now() - begun)));
        });
      });
    };
    const take = (line: string) => {
      isChanged = true;
      if (line.startsWith(EXCHANGE)) {
        lines.push(line);
        if (lines.length > 2 * SHOWN_MAX) lines = lines.slice(-SHOWN_MAX);
        return;
      }
      const item = JSON.parse(line);
      if (item.type === "status") stream.status = item as TrafficStatus;
      if (item.type === "lost") stream.lost += item.count;
    };
    const run = async () => {
      try {
        const first = await call(`/api/v1/traffic?limit=${SHOWN_MAX}${query}`, { signal: controller.signal });
        const { exchanges, status } = await first.json();
        lines = [];
        Object.assign(stream, { exchanges, status, error: null, isConnected: true });
        const after = exchanges[0]?.id;
        const from = after === undefined ? "" : `&after=${after}`;
        const response = await call(`/api/v1/traffic/stream?${`${query}${from}`.slice(1)}`, { signal: controller.signal });
        isChanged = true;
        await readLines(response, take);
        throw new Error("The stream has ended.");
      } catch (error) {
        if (controller.signal.aborted) return;
        Object.assign(stream, { error, isConnected: false });
        isChanged = true;
        if (error instanceof ApiError && error.status < 500) return;
        timer = window.setTimeout(run, RECONNECT_MS);
      }
    };
    show(EMPTY);
    next = window.setTimeout(draw, DRAW_MS);
    void run();
    return () => {
      controller.abort();
      clearTimeout(next);
      cancelAnimationFrame(frame);
      clearTimeout(timer);
    };
  }, [query, attempt]);
  return { ...shown, again: () => setAttempt((count) => count + 1) };
}

async function readLines(response: Response, take: (line: string) => void): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    lines.filter((line) => line !== "").forEach(take);
  }
}

/** The filters of the last time, for the way back from a call. */
let lastDraft: Record<string, string> = {};

export function Traffic() {
  const { query } = useCell(route);
  const [draft, setDraft] = useState<Record<string, string>>(() => (query.size > 0 ? Object.fromEntries(query) : lastDraft));
  lastDraft = draft;
  const [paused, pause] = useState(false);
  const [pointed, point] = useState(false);
  const conditions = FILTERS.map(({ key }) => [key, draft[key]?.trim() ?? ""]).filter(([, value]) => value !== "");
  const text = new URLSearchParams(conditions as [string, string][]).toString();
  // Only at first: a filter that is emptied while somebody types must not fold up.
  const [isOpen] = useState(conditions.length > 0);
  const settled = useSettled(text === "" ? "" : `&${text}`, 400);
  const stream = useStream(settled, paused || pointed);
  // The address has the filter, so a copy of it shows the same calls.
  useEffect(() => window.history.replaceState(null, "", `${link("traffic")}${settled.replace("&", "?")}`), [settled]);
  if (stream.error instanceof ApiError && [401, 403].includes(stream.error.status)) {
    return <Trouble error={stream.error} again={stream.again} />;
  }
  const shown = stream.exchanges;
  return (
    <>
      <h1 class="hidden">Traffic</h1>
      <Failures query={settled} />
      <Card
        title="Traffic"
        note={
          <>
            <Notice stream={stream} />
            {pointed && !paused && "; held under the pointer"}
          </>
        }
        actions={
          <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>
            {paused ? "Resume" : "Pause"}
          </button>
        }
      >
        <details class="filters" open={isOpen}>
          <summary>Filter{conditions.length > 0 ? `: ${conditions.map(([key, value]) => `${key} ${value}`).join(", ")}` : ""}</summary>
          <div class="fields">
            {FILTERS.map(({ key, label, placeholder }) => (
              <label key={key}>
                {label}
                <input
                  value={draft[key] ?? ""}
                  placeholder={placeholder}
                  spellcheck={false}
                  onInput={(event) => setDraft({ ...draft, [key]: event.currentTarget.value })}
                />
              </label>
            ))}
            <button type="button" onClick={() => setDraft({})}>
              Clear
            </button>
          </div>
        </details>
        {stream.error && <Message tone="bad">{stream.error.message}</Message>}
        {stream.lost > 0 && <Message tone="warn">{plural(stream.lost, "exchange")} left the list before this page could read them.</Message>}
        {/* No row moves away under a mouse. A finger has no place where it rests. */}
        <div onPointerEnter={({ pointerType }) => point(pointerType === "mouse")} onPointerLeave={() => point(false)}>
          <Table label="Exchanges, newest first" columns={LIVE} rows={shown} rowKey={({ id }) => String(id)} compact />
        </div>
        {shown.length === 0 && !stream.error && <Empty>{conditions.length > 0 ? "No exchange meets the filter yet." : "Waiting for the next exchange…"}</Empty>}
      </Card>
    </>
  );
}

/** The last failed calls, which Egret keeps whether or not somebody looks. Nothing while there are none. */
export function Failures({ query }: { query: string }) {
  const { data } = usePoll<{ exchanges: Exchange[] }>(`/api/v1/failures?limit=${FAILURES_SHOWN}${query}`, FAILURES_PERIOD_MS);
  const failed = data?.exchanges ?? [];
  if (failed.length === 0) return null;
  return (
    <Card title="Failed calls" note="also from before somebody looked, the newest first">
      <Table label="Failed calls, newest first" columns={columns("failure")} rows={failed} rowKey={({ id }) => String(id)} compact />
    </Card>
  );
}

/** Returns the value once it has not changed for a while. */
function useSettled(value: string, ms: number): string {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => settle(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

function Notice({ stream: { status, isConnected } }: { stream: Stream }) {
  if (!status || !isConnected) return <>connecting</>;
  const hidden = { secrets: "secrets are hidden", all: "all values are hidden", off: "nothing is hidden" }[status.redact];
  const sampled = status.one_in > 1 ? `one of ${whole(status.one_in)} exchanges` : "all exchanges";
  const missed = status.missed > 0 ? `; ${whole(status.missed)} missed` : "";
  return (
    <>
      {sampled}
      {missed}, {hidden}; {whole(status.entries)} kept in {bytes(status.bytes)}
    </>
  );
}

/** The path and the query of a URL, without the origin that stands beside it. */
export function target(url: string): string {
  const start = url.indexOf("/", url.indexOf("//") + 2);
  return start < 0 ? "/" : url.slice(start);
}

export function tone(exchange: Pick<Exchange, "status" | "answered_by">): Tone {
  if (exchange.status === 0 || exchange.status >= 500) return "bad";
  if (exchange.status >= 400) return "warn";
  return exchange.status >= 300 ? "note" : "good";
}

export const BY: Record<Exchange["answered_by"], string> = {
  provider: "provider",
  cache: "cache",
  egret: "Egret",
  nobody: "nobody",
};

/** The columns of a list whose exchanges are shown by this view. */
const columns = (view: string): Column<Exchange>[] => [
  {
    key: "path",
    title: "Exchange",
    class: "path",
    cell: ({ id, method, url, resent_of }) => (
      <>
        <a href={link(view, String(id))}>
          <code>
            {method} {target(url)}
          </code>
        </a>{" "}
        {resent_of !== undefined && <Pill tone="note">sent again</Pill>}
      </>
    ),
  },
  { key: "started", title: "Time", note: zone(), cell: ({ started }) => day(new Date(started)) },
  { key: "provider", title: "Provider", cell: ({ provider, host }) => (provider === "-" ? host : provider) },
  {
    key: "status",
    title: "Status",
    cell: (exchange) => <Pill tone={tone(exchange)}>{exchange.status === 0 ? "none" : String(exchange.status)}</Pill>,
  },
  {
    key: "by",
    title: "Answered by",
    cell: ({ answered_by, error }) => (
      <>
        {BY[answered_by]} {error && <code>{error}</code>}
      </>
    ),
  },
  { key: "duration", title: "Time taken", numeric: true, cell: ({ duration_us }) => time(duration_us) },
  { key: "size", title: "Size", numeric: true, class: "extra", cell: ({ response_bytes }) => bytes(response_bytes) },
  { key: "attempts", title: "Calls", numeric: true, class: "extra", cell: ({ attempts }) => number(attempts) },
  { key: "flows", title: "Flows", class: "extra", cell: ({ flows }) => flows.join(", ") || "–" },
];

const LIVE = columns("traffic");
