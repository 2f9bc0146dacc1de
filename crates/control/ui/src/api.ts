// The control API: requests with the token, and the types of its responses.

import { Cell } from "./cell";

const TOKEN_KEY = "egret-control-token";
const TIME_LIMIT_MS = 8000;

/** True if the gateway lets the caller read and not change. */
export const onlyReads = new Cell(false);

/** A mistake in a config, as `egret check` finds it. */
export interface ConfigProblem {
  file: string;
  line: number | null;
  column: number | null;
  path: string;
  message: string;
  suggestion: string | null;
  severity?: "error" | "warning";
}

export interface Count {
  name: string;
  count: number;
}

export interface Histogram {
  /** Number of values near each of these. */
  values_us: Record<string, number>;
}

export interface ProviderStats {
  name: string;
  host?: string;
  exchanges: { method: string; status: string; count: number }[];
  /** Of these, the responses that Egret generated itself, by status class. */
  generated?: Count[];
  /** Of these, the responses from a cache, by status class. */
  stored?: Count[];
  latency: Histogram;
  footprint: Histogram;
  sent_bytes: number;
  received_bytes: number;
  connects: number;
  connect_failures: number;
  tls_handshakes: number;
  tls_failures: number;
  pool_hits: number;
  pool_steals: number;
  repeats: number;
  connections_open: number;
  connections_idle: number;
  tunnels: number;
}

export interface Stats {
  version: string;
  ready: boolean;
  uptime_s: number;
  providers: ProviderStats[];
  clients: { accepted: number; refused: number; open: number; idle: number; tunnels: number; received_bytes: number; sent_bytes: number };
  interception: {
    connections: number;
    exchanges: number;
    refused: number;
    unknown: number;
    sni_mismatches: number;
    provider_tunnels: number;
    ca_expires_s?: number;
  };
  generated: Count[];
  dns: { lookups: number; hits: number; coalesced: number; failures: number; entries: number };
  denials: Count[];
  diagnoses_shedding: boolean;
  diagnoses_sheds: number;
  reloads: number;
  reloads_refused: number;
}

export interface CacheStats {
  counts: Record<string, number>;
  hit_ratio: number | null;
  entries: number;
  bytes: number;
  evicted: number;
  disk?: { is_open: boolean; entries: number; bytes: number };
}

export interface Circuits {
  state: string;
  circuits: number;
  open: number;
  half_open: number;
  until_us: number | null;
  transitions_count: number;
  /** The newest first. */
  transitions: { at_us: number; provider: string; to: string; until_us: number | null; reason: string; outcome: string | null }[];
}

export interface Remedy {
  remedy: string;
  does: string;
  mode: "enforce" | "report";
  decisions: Record<string, number>;
  /** Of these, the decisions of the last minute. */
  last_minute: Record<string, number>;
  shares: Record<string, number>;
  waits: number;
  waited_us: number;
  cache?: CacheStats;
  script?: { overruns: number; rests: number };
  quota?: string;
  circuits?: Circuits;
  fault?: Fault;
  hedges?: { slow: number; made: number; used: number; over_budget: number };
  queue?: { waiting: number; size: number; oldest_us: number };
}

/** A fault that is injected on purpose. */
export interface Fault {
  state: "on" | "off" | "ended";
  until_us: number | null;
  injected: Record<string, number>;
}

export interface Diagnosis {
  diagnosis: string;
  does: string;
  recorded: number;
  dropped: number;
  shed: number;
  skipped: number;
  failed: number;
  queued: number;
}

export interface Flow {
  name: string;
  match_failures: number;
  remedies: Remedy[];
  diagnoses: Diagnosis[];
}

export interface QuotaGroup {
  name: string;
  used: number;
  /** Units of these that calls under way hold. */
  reserved: number;
  limit: number;
  remaining: number;
  reset_us: number;
  store_failed: boolean;
}

export interface Quota {
  name: string;
  kind: string;
  /** Of money, whose figures are nano-dollars. */
  unit?: "usd";
  groups_count: number;
  groups: QuotaGroup[];
}

export interface SpendSum {
  calls: number;
  cost_nanodollars: number;
}

/** The costs of calls by one kind of names. */
export interface SpendList {
  by: string;
  /** Whether a flow has a ledger, which sums costs. */
  has_ledger: boolean;
  since_us: number | null;
  /** Labels that there are sums by. */
  labels: string[];
  /** The highest costs first. */
  rows: (SpendSum & { name: string })[];
  other: SpendSum;
  total: SpendSum;
}

export interface Account {
  name: string;
  kind: string;
  providers: string[];
  state: "usable" | "cooling";
  until_us: number | null;
  reason: string | null;
  in_flight: number;
  calls: number;
  refused: Record<string, number>;
  failed: number;
  remaining: number | null;
  reset_us: number | null;
  token?: { state: string; expires_us: number | null; trouble: string | null };
}

export interface Exporter {
  name: string;
  type: string;
  up: boolean;
  put: number;
  written: number;
  written_bytes: number;
  dropped: Record<string, number>;
  retries: number;
  repaired: number;
  spooled_bytes: number;
  last_error: string | null;
}

export interface Endpoint {
  provider: string;
  url: string;
  method: string;
  path: string;
  count: number;
  statuses: Record<string, number>;
  p50_us: number;
  p90_us: number;
  p99_us: number;
  first_seen: string;
  last_seen: string;
}

/** The calls of a consumer to a provider. */
export interface Consumer {
  consumer: string;
  provider: string;
  count: number;
  statuses: Record<string, number>;
  p50_us: number;
  p99_us: number;
  first_seen: string;
  last_seen: string;
}

export interface Discovered {
  flow: string;
  unlisted: number;
  endpoints: Endpoint[];
  consumers: Consumer[];
  other_consumers: number;
}

/** What a program must know to send its calls through the gateway. */
export interface Gateway {
  listeners: { address: string; tls: boolean; provider: string | null; redirect: boolean; socks5: boolean }[];
  providers: Record<string, { url: string }>;
  interception: {
    hosts: string[];
    tunnel: string[];
    /** The root certificate in PEM. */
    certificate: string;
  } | null;
}

export interface Cluster {
  name: string;
  member: string;
  members: number;
  up: boolean;
  error: string | null;
  calls: number;
  failures: number;
  learning_us: number;
  segments: { number: number; up: boolean; error: string | null; master: string | null; members: number; groups: number; failures: number }[];
  quotas: {
    name: string;
    on_store_error: string;
    groups_count: number;
    groups: { name: string; limit: number; used: number; hold: number; pool: number; kept: number; state: string; config_differs: boolean }[];
  }[];
}

export interface ConfigFiles {
  etag: string;
  files: { name: string; text: string }[];
}

export interface Checked {
  valid: boolean;
  problems: ConfigProblem[];
  warnings: ConfigProblem[];
}

export interface Applied {
  etag: string;
  version: number | null;
  applied: string[];
  restart: string[];
  warnings: ConfigProblem[];
}

export interface Version {
  number: number;
  since_us: number;
  origin: string;
  user: string | null;
  bytes: number;
  current: boolean;
}

export type Quantile = "p50" | "p90" | "p99";
export type StatusClass = "none" | "1xx" | "2xx" | "3xx" | "4xx" | "5xx";

/** Columns, each with one element for each step. */
export interface History {
  step_s: number;
  times_s: number[];
  generated: number[];
  providers: {
    provider: string;
    host: string | null;
    /** The provider's own responses. */
    statuses: Record<StatusClass, number[]>;
    /** Responses that Egret generated in its place, and those from a cache. */
    generated: number[];
    stored: number[];
    latency_us: Record<Quantile, (number | null)[]>;
    footprint_us: Record<Quantile, (number | null)[]>;
    /** Its calls in the last five minutes, and at this time yesterday, if there were any. */
    compared?: { now: Calls; yesterday: Calls } | null;
  }[];
}

/** Calls of some minutes. */
export interface Calls {
  exchanges: number;
  errors: number;
  /** Mean time until a response began. */
  wait_us: number | null;
}

/** Something that is wrong now. */
export interface Finding {
  kind: string;
  severity: "error" | "warning";
  /** The name of what is in trouble. */
  subject: string;
  since_us: number;
  summary: string;
  evidence: string;
  advice: string;
}

/** Something that happened. */
export interface GatewayEvent {
  at_us: number;
  what: "started" | "config-applied" | "began" | "ended";
  text: string;
}

export interface FindingsList {
  /** The worst first. */
  findings: Finding[];
  /** The newest first. */
  events: GatewayEvent[];
}

/** A line of live traffic. */
export interface Exchange {
  type: "exchange";
  id: number;
  started: string;
  method: string;
  url: string;
  host: string;
  provider: string;
  flows: string[];
  consumer: string;
  request_id: string;
  account: string;
  client: string;
  status: number;
  answered_by: "provider" | "cache" | "egret" | "nobody";
  error: string | null;
  duration_us: number;
  footprint_us: number;
  attempts: number;
  request_bytes: number;
  response_bytes: number;
  media_type: string;
  cut_short: boolean;
  /** Time until the client closed its connection, if it did before the response was complete. */
  client_closed_us?: number;
  intercepted: boolean;
  /** The exchange whose request was sent again. */
  resent_of?: number;
}

export interface TrafficStatus {
  open: boolean;
  redact: "secrets" | "all" | "off";
  entries: number;
  entries_max: number;
  bytes: number;
  bytes_max: number;
  one_in: number;
  seen: number;
  recorded: number;
  missed: number;
}

export interface HarMessage {
  httpVersion: string;
  headers: { name: string; value: string }[];
}

export interface HarEntry {
  request: HarMessage & { method: string; url: string; postData?: { mimeType: string; text?: string; encoding?: string; comment?: string } };
  response: HarMessage & {
    status: number;
    statusText: string;
    content: { size: number; mimeType: string; text?: string; encoding?: string; comment?: string };
  };
}

/** A call to a provider, with its messages if it has failed. */
export interface ProviderCall {
  start_us: number;
  end_us: number;
  status: number;
  error: string | null;
  request?: HarEntry["request"];
  response?: HarEntry["response"];
}

export interface ExchangeDetails extends Exchange {
  resend: { possible: boolean; acts_again: boolean; reason: string | null };
  phases: Record<string, number | null>;
  calls: ProviderCall[];
  decisions: { flow: string; remedy: string; decision: string; report: boolean; text: string; does: string }[];
  har: HarEntry;
}

/** A response that is not a success. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly problems: ConfigProblem[] = [],
  ) {
    super(message);
  }
}

export function token(): string | null {
  return sessionStorage.getItem(TOKEN_KEY);
}

export function keepToken(value: string): void {
  sessionStorage.setItem(TOKEN_KEY, value);
}

export function forgetToken(): void {
  sessionStorage.removeItem(TOKEN_KEY);
}

/** Takes the token from the address that Egret prints at its start, and removes it from the address bar and the history. */
export function takeToken(): boolean {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return false;
  keepToken(given);
  history.replaceState(null, "", location.pathname);
  return true;
}

/** Sends a request with the token. Throws an `ApiError` unless the response is a success. */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const known = token();
  if (known !== null) headers.set("authorization", `Bearer ${known}`);
  const signal = init.signal ?? AbortSignal.timeout(TIME_LIMIT_MS);
  const response = await fetch(path, { ...init, headers, signal, cache: "no-store" });
  const reads = response.headers.get("x-egret-access") === "read";
  if (reads !== onlyReads.value) onlyReads.value = reads;
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const detail = typeof problem.detail === "string" ? problem.detail : `The control port responded with ${response.status}.`;
  throw new ApiError(response.status, detail, problem.problems ?? []);
}

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await call(path, signal ? { signal: AbortSignal.any([signal, AbortSignal.timeout(TIME_LIMIT_MS)]) } : {});
  return response.json();
}

export async function readText(path: string): Promise<string> {
  return (await call(path)).text();
}
