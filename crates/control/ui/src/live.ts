// Fetches the statistics every second for all views, and knows whether the gateway can be reached.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type FindingsList, type History, read, type Stats, takeToken, token } from "./api";
import { Cell } from "./cell";
import { Moments, OwnHistory, PERIOD_MS } from "./figures";

const HISTORY_PERIOD_MS = 10_000;
const FINDINGS_PERIOD_MS = 2_000;

export type Access = "open" | "needed" | "refused";

export interface Live {
  moments: Moments | null;
  /** The time since which the gateway cannot be reached. */
  awaySince: Date | null;
  /** Whether the figures need a token. */
  access: Access;
}

export const live = new Cell<Live>({ moments: null, awaySince: null, access: "open" });
export const history = new Cell<History | null>(null);
/** What is wrong now, and what happened. */
export const findings = new Cell<FindingsList | null>(null);

const moments = new Moments();
const own = new OwnHistory();
/** Number of steps from which on the gateway's history shows more than that of the page. */
const STEPS_ENOUGH = 12;

let gatewayKeepsHistory = true;
let gatewayHistory: History | null = null;
let timer = 0;

function showHistory(): void {
  const hasEnough = gatewayHistory !== null && gatewayHistory.times_s.length >= STEPS_ENOUGH;
  history.value = hasEnough ? gatewayHistory : own.view;
}

async function poll(): Promise<void> {
  clearTimeout(timer);
  try {
    const stats = await read<Stats>("/api/v1/stats");
    moments.add(stats, performance.now());
    own.add(stats, performance.now());
    showHistory();
    live.value = { moments, awaySince: null, access: "open" };
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      live.value = { ...live.value, moments: null, access: token() === null ? "needed" : "refused" };
      return;
    }
    live.value = { ...live.value, awaySince: live.value.awaySince ?? new Date() };
    console.debug(error);
  }
  timer = window.setTimeout(poll, PERIOD_MS);
}

async function pollHistory(): Promise<void> {
  if (live.value.access === "open") {
    try {
      gatewayHistory = await read<History>("/api/v1/history");
      moments.keep(gatewayHistory, performance.now());
      showHistory();
    } catch (error) {
      gatewayKeepsHistory = !(error instanceof ApiError && error.status === 404);
    }
  }
  if (gatewayKeepsHistory) setTimeout(pollHistory, HISTORY_PERIOD_MS);
}

async function pollFindings(): Promise<void> {
  if (live.value.access === "open") {
    try {
      findings.value = await read<FindingsList>("/api/v1/findings");
    } catch (error) {
      // The last ones stay, under the message that the gateway cannot be reached.
      console.debug(error);
    }
  }
  setTimeout(pollFindings, FINDINGS_PERIOD_MS);
}

/** Starts to fetch, and starts again when a token is given. */
export function start(): void {
  void poll().then(() => Promise.all([pollFindings(), pollHistory()]));
}

export function retry(): void {
  void poll();
}

window.addEventListener("hashchange", () => {
  if (takeToken()) retry();
});

export interface Polled<T> {
  data: T | null;
  error: ApiError | Error | null;
  /** Fetches at once. */
  again: () => void;
}

/** Fetches a path while the component is shown. A failure keeps the last data. */
export function usePoll<T>(path: string, periodMs: number): Polled<T> {
  const [state, set] = useState<{ data: T | null; error: Error | null }>({ data: null, error: null });
  const fetchNow = useRef<() => void>(() => {});
  useEffect(() => {
    const controller = new AbortController();
    let timer = 0;
    const step = async () => {
      clearTimeout(timer);
      try {
        const data = await read<T>(path, controller.signal);
        if (!controller.signal.aborted) set({ data, error: null });
      } catch (error) {
        if (controller.signal.aborted) return;
        set((before) => ({ data: before.data, error: error as Error }));
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return;
      }
      if (!controller.signal.aborted) timer = window.setTimeout(step, periodMs);
    };
    fetchNow.current = () => void step();
    void step();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [path, periodMs]);
  return { ...state, again: () => fetchNow.current() };
}
