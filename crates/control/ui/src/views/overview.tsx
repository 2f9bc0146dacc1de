// What happens now: figures of the gateway, its providers, and what Egret answered itself.
import { useState } from "preact/hooks";
import type { Cluster, Gateway, History, Stats } from "../api";
import { useCell, useKept } from "../cell";
import { exchanges, find, label, type Moments, shownName, sum, total } from "../figures";
import { duration, number, percent, plural, time, whole } from "../format";
import { history, usePoll } from "../live";
import { Card, Copy, Empty, Pill } from "../parts/basics";
import { Span, Spark, Stack } from "../parts/charts";
import { Events } from "../parts/findings";
import { type Column, ordered, type Sort, Table } from "../parts/table";
import { link } from "../route";
import { Groups } from "./groups";
import { answersAt, Tiles, TrafficCharts, trend } from "./tiles";

// Limits of the logarithmic bars in microseconds: the usual ranges of providers and of a gateway.
const SCALES = { latency: [1e3, 1e7] as [number, number], footprint: [1e1, 1e4] as [number, number] };
const ROWS_MAX = 200;

export function Overview({ moments, traffic }: { moments: Moments; traffic: boolean }) {
  const { stats } = moments.now;
  return (
    <>
      <h1 class="hidden">Overview</h1>
      <Tiles moments={moments} />
      <TrafficCharts />
      <Providers moments={moments} />
      <Groups traffic={traffic} />
      <div class="pair">
        <OwnAnswers moments={moments} traffic={traffic} />
        <Denials stats={stats} />
        <Interception stats={stats} />
        <ClusterCard />
        <Events />
      </div>
    </>
  );
}

interface Row {
  name: string;
  rate: number;
  errors: number;
  latency: Record<"p50" | "p90" | "p99", number | null>;
  footprint: Record<"p50" | "p90" | "p99", number | null>;
  open: number;
  idle: number;
  isQuiet: boolean;
}

const SORTS: Record<string, (row: Row) => number | string> = {
  name: (row) => row.name,
  rate: (row) => row.rate,
  // Those in trouble first, and the others by their calls: no rate reaches the factor.
  errors: (row) => 1e9 * Math.max(0, row.errors) + row.rate,
  latency: (row) => row.latency.p99 ?? -1,
  footprint: (row) => row.footprint.p99 ?? -1,
  connections: (row) => row.open,
};

function rowOf(moments: Moments, name: string): Row {
  const provider = find(moments.now.stats, name)!;
  const answers = moments.answers(name);
  const bad = sum(answers.provider.filter(([status]) => status === "5xx" || status === "none").map(([, count]) => count));
  return {
    name,
    rate: moments.rate((stats) => exchanges(find(stats, name))),
    errors: answers.total > 0 ? (bad + answers.egret) / answers.total : -1,
    latency: moments.quantiles(name, "latency"),
    footprint: moments.quantiles(name, "footprint"),
    open: provider.connections_open,
    idle: provider.connections_idle,
    isQuiet: answers.total === 0,
  };
}

function Providers({ moments }: { moments: Moments }) {
  const kept = useCell(history);
  const [filter, setFilter] = useState("");
  const [hideIdle, setHideIdle] = useKept("hide-idle", "no");
  const [sort, setSort] = useState<Sort>({ key: "errors", descending: true });
  const { stats } = moments.now;
  const known = stats.providers.filter((provider) => provider.name !== "-" || exchanges(provider) > 0).map(label);
  const wanted = known.filter((name) => shownName(name).toLowerCase().includes(filter.toLowerCase()));
  const rows = wanted.map((name) => rowOf(moments, name));
  const busy = hideIdle === "yes" ? rows.filter((row) => !row.isQuiet) : rows;
  const shown = ordered(busy, SORTS[sort.key]!, sort.descending).slice(0, ROWS_MAX);
  const hidden = known.length - shown.length;
  return (
    <Card
      title="Providers"
      note={hidden > 0 ? `${whole(shown.length)} of ${whole(known.length)}` : plural(known.length, "provider")}
      actions={
        <>
          <label class="inline">
            <span class="hidden">Filter by name</span>
            <input type="search" placeholder="Filter by name" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
          </label>
          <label class="inline">
            <input
              type="checkbox"
              checked={hideIdle === "yes"}
              onChange={(event) => setHideIdle(event.currentTarget.checked ? "yes" : "no")}
            />
            Hide idle
          </label>
        </>
      }
    >
      <Table
        label="Providers"
        columns={columns(moments, kept)}
        rows={shown}
        rowKey={(row) => row.name}
        rowClass={(row) => (row.isQuiet ? "quiet" : "")}
        sort={sort}
        onSort={setSort}
      />
      {total(stats) === 0 && <FirstCall />}
      {known.length > 0 && shown.length === 0 && <Empty>No provider meets the filter.</Empty>}
      <Legend />
    </Card>
  );
}

/** A command for the first call. */
function FirstCall() {
  const { data } = usePoll<Gateway>("/api/v1/gateway", 10_000);
  const listener = data?.listeners.find(
    ({ address, provider, tls, redirect, socks5 }) => !provider && !tls && !redirect && !socks5 && !address.startsWith("unix:"),
  );
  if (!data || !listener) return <Empty>No exchanges yet. Send your application’s calls through the gateway.</Empty>;
  const address = listener.address.replace(/^(0\.0\.0\.0|\[::\])/, location.hostname);
  const [provider] = Object.keys(data.providers);
  const command = provider ? `curl http://${address}/${provider}/` : `curl -x http://${address} http://example.com/`;
  return (
    <Empty>
      No exchanges yet. Try: <code>{command}</code> <Copy label="Copy" text={() => command} />
    </Empty>
  );
}

function columns(moments: Moments, kept: History | null): Column<Row>[] {
  const rates = (name: string) =>
    trend(kept, ({ providers }, step) => sum(providers.filter((column) => (column.host ?? column.provider) === name).map((column) => answersAt(column, step))));
  return [
    {
      key: "name",
      title: "Provider",
      sortable: true,
      cell: ({ name }) => (
        <a href={link("provider", name)} class={name === "-" ? "others" : ""}>
          {shownName(name)}
        </a>
      ),
    },
    {
      key: "rate",
      title: "Requests",
      note: "per second, last 10 min",
      numeric: true,
      sortable: true,
      cell: ({ name, rate }) => (
        <div class="rate">
          <Spark values={rates(name)} />
          <b>{number(rate)}</b>
        </div>
      ),
    },
    { key: "errors", title: "Responses", note: "last 30 s", sortable: true, cell: ({ name }) => <AnswersCell moments={moments} name={name} /> },
    {
      key: "latency",
      title: "Latency",
      note: "p50 · p90 · p99",
      help: "Time from the request until the client had the whole response",
      sortable: true,
      cell: ({ latency }) => <Times times={latency} scale={SCALES.latency} />,
    },
    {
      key: "footprint",
      title: "Footprint",
      note: "p50 · p90 · p99",
      help: "The part of the latency that Egret itself takes",
      sortable: true,
      cell: ({ footprint }) => <Times times={footprint} scale={SCALES.footprint} />,
    },
    {
      key: "connections",
      title: "Connections",
      note: "to the provider",
      numeric: true,
      sortable: true,
      cell: ({ open, idle }) => (
        <>
          <b>{whole(open)} open</b> <small>{whole(idle)} idle</small>
        </>
      ),
    },
  ];
}

export function AnswersCell({ moments, name }: { moments: Moments; name: string }) {
  const { total, provider, egret, cache } = moments.answers(name);
  if (total === 0) return <small>no responses</small>;
  const named = (status: string) => (status === "none" ? "no response" : status);
  const parts = provider.map(([status, count]): [string, number] => [`s${status === "none" ? 0 : status[0]}`, count]);
  const all = [
    ...provider.map(([status, count]): [string, number] => [named(status), count]),
    ["by Egret", egret] as [string, number],
    ["from cache", cache] as [string, number],
  ].filter(([, count]) => count > 0);
  const told = all.filter(([status]) => status !== "2xx" && status !== "3xx").map(([status, count]) => `${status} ${percent(count / total)}`);
  return (
    <div title={all.map(([status, count]) => `${status} ${percent(count / total)}`).join(", ")}>
      <Stack parts={[...parts, ["own", egret], ["cache", cache]]} />
      <small>{told.join(" · ") || "no errors"}</small>
    </div>
  );
}

function Times({ times, scale }: { times: Row["latency"]; scale: [number, number] }) {
  return (
    <>
      <Span p50={times.p50} p99={times.p99} scale={scale} />
      <small class="times">
        <b>{time(times.p50)}</b> <span>{time(times.p90)}</span> <span>{time(times.p99)}</span>
      </small>
    </>
  );
}

function Legend() {
  const swatch = (name: string, text: string) => <span class={name}>{text}</span>;
  return (
    <details class="legend">
      <summary>What the figures mean</summary>
      <p class="swatches">
        {swatch("s2", "2xx")}
        {swatch("s3", "3xx")}
        {swatch("s4", "4xx")}
        {swatch("s5", "5xx")}
        {swatch("s0", "no response")}
        {swatch("cache", "from a cache")}
        {swatch("own", "generated by Egret")}
      </p>
      <dl>
        <dt>Responses</dt>
        <dd>
          Statuses are those of the provider. A response that Egret generates in its place, such as an error or one of an open
          circuit, is counted as <i>by Egret</i>.
        </dd>
        <dt>Latency</dt>
        <dd>Time from the end of the request head until the client had the whole response. The bar is logarithmic, from 1 ms to 10 s.</dd>
        <dt>Footprint</dt>
        <dd>
          The part of the latency that Egret itself takes, without waits for the provider or the bodies. The bar is logarithmic,
          from 10 µs to 10 ms.
        </dd>
        <dt>Bars of times</dt>
        <dd>The dark part ends at the median (p50), the light part at the 99th percentile (p99).</dd>
        <dt>Connections</dt>
        <dd>Open connections to the provider, and how many of these are idle.</dd>
      </dl>
    </details>
  );
}

/** Reasons of the gateway's own responses, in words. */
const REASONS: Record<string, string> = {
  "account-unavailable": "no account of the flow is usable",
  "bad-request": "the request is not valid HTTP",
  "bad-response": "the response is not valid HTTP",
  "bodies-full": "no memory is left for bodies",
  "body-too-large-to-sign": "a body is too large to be signed",
  "circuit-open": "a circuit breaker is open",
  "connect-failed": "no connection to the provider",
  "connect-not-allowed": "CONNECT is not allowed there",
  "connect-timeout": "no connection in time",
  "dns-failed": "the host name has no address",
  "dns-timeout": "no name server responded in time",
  "egress-denied": "the egress policy denies the target",
  "first-byte-timeout": "no response in time",
  "head-too-large": "the header fields are too large",
  "idle-timeout": "the response stalled",
  "loop-detected": "the request came through this gateway before",
  "misdirected": "the host is not that of the tunnel",
  "not-cached": "the client accepts a stored response only",
  "pool-full": "all connections to the provider are in use",
  "provider-closed": "the provider closed the connection",
  "provider-throttled": "the provider asked for a pause",
  "queue-full": "a queue is full",
  "queue-timeout": "the turn would come too late",
  "quota-exceeded": "a quota is used up",
  "remedy-failed": "a remedy could not decide",
  "request-timeout": "the request came too slowly",
  "resend-elsewhere": "a request sent again would go to another provider",
  "script-refused": "a script refused the request",
  "store-unavailable": "the store of a quota does not respond",
  "tls-failed": "the TLS handshake with the provider failed",
  "tls-timeout": "the TLS handshake took too long",
  "too-many-connections": "too many client connections",
  "too-many-in-flight": "too many calls at once",
  "total-timeout": "the exchange took too long",
  "unknown-provider": "no provider has that name",
};

function OwnAnswers({ moments, traffic }: { moments: Moments; traffic: boolean }) {
  const counts = moments.now.stats.generated.filter(({ count }) => count > 0);
  if (counts.length === 0) return null;
  const recent = (name: string) => moments.growth((stats) => stats.generated.find((each) => each.name === name)?.count ?? 0);
  const rows = ordered([...counts], ({ count }) => count, true);
  return (
    <Card title="Errors generated by Egret" note="these never came from a provider">
      <Table
        label="Errors generated by Egret"
        rows={rows}
        rowKey={({ name }) => name}
        columns={[
          {
            key: "name",
            title: "Error",
            cell: ({ name }) => (
              <>
                {traffic ? (
                  <a href={`#/traffic?error=${name}`}>
                    <code>{name}</code>
                  </a>
                ) : (
                  <code>{name}</code>
                )}{" "}
                {REASONS[name] && <small>{REASONS[name]}</small>}
              </>
            ),
          },
          { key: "recent", title: "Last 30 s", numeric: true, cell: ({ name }) => whole(recent(name)) },
          { key: "count", title: "Since start", numeric: true, cell: ({ count }) => <b>{whole(count)}</b> },
        ]}
      />
    </Card>
  );
}

function Denials({ stats }: { stats: Stats }) {
  const counts = stats.denials.filter(({ count }) => count > 0);
  if (counts.length === 0) return null;
  return (
    <Card title="Targets denied by the egress policy">
      <Table
        label="Targets denied by the egress policy"
        rows={ordered([...counts], ({ count }) => count, true)}
        rowKey={({ name }) => name}
        columns={[
          { key: "name", title: "Reason", cell: ({ name }) => <code>{name}</code> },
          { key: "count", title: "Since start", numeric: true, cell: ({ count }) => <b>{whole(count)}</b> },
        ]}
      />
    </Card>
  );
}

function Interception({ stats }: { stats: Stats }) {
  const { interception } = stats;
  if (interception.ca_expires_s === undefined) return null;
  return <InterceptionCard interception={interception} expires={interception.ca_expires_s} />;
}

function InterceptionCard({ interception, expires }: { interception: Stats["interception"]; expires: number }) {
  const { data } = usePoll<Gateway>("/api/v1/gateway", 10_000);
  const config = data?.interception;
  const facts: [string, number][] = [
    ["tunnels served", interception.connections],
    ["requests inside", interception.exchanges],
    ["clients that refused the certificate", interception.refused],
    ["tunnels closed for an unknown protocol", interception.unknown],
    ["other server name than in CONNECT", interception.sni_mismatches],
  ];
  return (
    <Card
      title="Interception of HTTPS"
      note="since start"
      actions={config && <Copy label="Copy the root certificate" text={() => config.certificate} />}
    >
      <p>
        <Pill tone={expires > 14 * 86400 ? "good" : expires > 0 ? "warn" : "bad"}>
          {expires > 0 ? `the authority is valid for ${duration(expires)}` : "the authority has expired"}
        </Pill>
      </p>
      <dl class="facts">
        {facts.map(([name, count]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{whole(count)}</dd>
          </div>
        ))}
      </dl>
      {config && <Hosts title="Intercepted hosts" hosts={config.hosts} />}
      {config && <Hosts title="Hosts whose tunnels are never opened" hosts={config.tunnel} />}
    </Card>
  );
}

const HOSTS_SHOWN = 20;

function Hosts({ title, hosts }: { title: string; hosts: string[] }) {
  if (hosts.length === 0) return null;
  const hidden = hosts.length - HOSTS_SHOWN;
  return (
    <>
      <h3>{title}</h3>
      <p class="hosts">
        {hosts.slice(0, HOSTS_SHOWN).map((host) => (
          <code key={host}>{host}</code>
        ))}
        {hidden > 0 && <small>and {whole(hidden)} more</small>}
      </p>
    </>
  );
}

const HOLDS: Record<string, string> = { held: "leased", kept: "cut off: its own share", over: "cut off: nothing left" };

function ClusterCard() {
  const { data } = usePoll<{ cluster: Cluster | null }>("/api/v1/cluster", 3000);
  const cluster = data?.cluster;
  if (!cluster) return null;
  return (
    <Card title={`Cluster ${cluster.name}`} note={`this gateway is ${cluster.member}`}>
      <p>
        <Pill tone={cluster.up ? "good" : "bad"}>{cluster.up ? "the store responds" : "the store does not respond"}</Pill>{" "}
        {plural(cluster.members, "gateway")}
        {cluster.error && <small> · {cluster.error}</small>}
        {cluster.learning_us > 0 && <small> · the store only learns for another {time(cluster.learning_us)}</small>}
      </p>
      <Table
        label="Segments of the store"
        rows={cluster.segments}
        rowKey={({ number }) => String(number)}
        columns={[
          { key: "number", title: "Segment", cell: ({ number, master }) => `${number}${master ? ` at ${master}` : ""}` },
          { key: "up", title: "State", cell: ({ up, error }) => <Pill tone={up ? "good" : "bad"}>{up ? "up" : (error ?? "down")}</Pill> },
          { key: "groups", title: "Groups", numeric: true, cell: ({ groups }) => whole(groups) },
          { key: "members", title: "Gateways", numeric: true, cell: ({ members }) => whole(members) },
          { key: "failures", title: "Failed calls", numeric: true, cell: ({ failures }) => whole(failures) },
        ]}
      />
      {cluster.quotas.length > 0 && (
        <Table
          label="Shared quotas"
          rows={cluster.quotas.flatMap((quota) => quota.groups.slice(0, 20).map((group) => ({ quota: quota.name, ...group })))}
          rowKey={({ quota, name }) => `${quota}/${name}`}
          columns={[
            { key: "name", title: "Quota", cell: ({ quota, name }) => `${quota}${name ? ` / ${name}` : ""}` },
            { key: "used", title: "Used", numeric: true, cell: ({ used, limit }) => `${whole(used)} of ${whole(limit)}` },
            { key: "hold", title: "Held here", numeric: true, cell: ({ hold }) => whole(hold) },
            { key: "pool", title: "In the pool", numeric: true, cell: ({ pool }) => whole(pool) },
            {
              key: "state",
              title: "State",
              cell: ({ state, kept, config_differs }) => (
                <>
                  <Pill tone={state === "held" ? "good" : "warn"}>{HOLDS[state] ?? state}</Pill>
                  {kept > 0 && <small> {whole(kept)} kept</small>}
                  {config_differs && <small> · its config differs between the gateways</small>}
                </>
              ),
            },
          ]}
        />
      )}
    </Card>
  );
}
