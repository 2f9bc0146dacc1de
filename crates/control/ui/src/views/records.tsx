// What leaves Egret as records, and what it has seen called.
import { useState } from "preact/hooks";
import { type Discovered, type Endpoint, type Exporter, readText } from "../api";
import { bytes, day, plural, time, whole } from "../format";
import { usePoll } from "../live";
import { Card, Copy, Empty, Message, Pill, Trouble } from "../parts/basics";
import { Stack } from "../parts/charts";
import { ordered, type Sort, Table } from "../parts/table";

const PERIOD_MS = 3000;
const ROWS_MAX = 300;

export function Records() {
  return (
    <>
      <h1 class="hidden">Records and discovery</h1>
      <Exporters />
      <Discovery />
    </>
  );
}

function Exporters() {
  const { data, error, again } = usePoll<{ exporters: Exporter[] }>("/api/v1/exporters", PERIOD_MS);
  if (!data) return error ? <Trouble error={error} again={again} /> : null;
  const lost = (exporter: Exporter) => Object.entries(exporter.dropped).filter(([, count]) => count > 0);
  return (
    <Card title="Exporters" note={plural(data.exporters.length, "exporter")}>
      {data.exporters.length === 0 && <Empty>No exporter is configured. Diagnoses with an output need one.</Empty>}
      {data.exporters.length > 0 && (
        <Table
          label="Exporters"
          rows={data.exporters}
          rowKey={({ name }) => name}
          columns={[
            {
              key: "name",
              title: "Exporter",
              cell: ({ name, type }) => (
                <>
                  {name} <small>{type}</small>
                </>
              ),
            },
            { key: "up", title: "State", cell: ({ up, put }) => <Pill tone={up ? "good" : put === 0 ? "calm" : "bad"}>{up ? "works" : put === 0 ? "nothing written yet" : "fails"}</Pill> },
            { key: "put", title: "Received", numeric: true, cell: ({ put }) => whole(put) },
            {
              key: "written",
              title: "Written",
              numeric: true,
              cell: ({ written, written_bytes }) => (
                <>
                  {whole(written)} <small>{bytes(written_bytes)}</small>
                </>
              ),
            },
            { key: "lost", title: "Lost", cell: (exporter) => lost(exporter).map(([reason, count]) => `${reason}: ${whole(count)}`).join(" · ") || "none" },
            { key: "retries", title: "Retries", numeric: true, cell: ({ retries }) => whole(retries) },
            { key: "spool", title: "Waiting on disk", numeric: true, cell: ({ spooled_bytes }) => bytes(spooled_bytes) },
            { key: "error", title: "Last error", class: "wide", cell: ({ last_error }) => last_error ?? "–" },
          ]}
        />
      )}
    </Card>
  );
}

function Discovery() {
  const { data, error, again } = usePoll<{ flows: Discovered[] }>("/api/v1/discovery", PERIOD_MS);
  const [config, setConfig] = useState<string | null>(null);
  const [trouble, setTrouble] = useState("");
  if (!data) return error ? <Trouble error={error} again={again} /> : null;
  const propose = async () => {
    try {
      setConfig(await readText("/api/v1/discovery/flows"));
      setTrouble("");
    } catch (error) {
      setTrouble((error as Error).message);
    }
  };
  const count = data.flows.reduce((sum, { endpoints }) => sum + endpoints.length, 0);
  return (
    <>
      {data.flows.map((list) => (
        <Card
          key={list.flow}
          title={list.flow === "" ? "Endpoints that were called" : `Endpoints of the flow ${list.flow}`}
          note={`${plural(list.endpoints.length, "endpoint")}${list.unlisted > 0 ? `; ${plural(list.unlisted, "exchange")} did not fit` : ""}`}
        >
          {list.endpoints.length === 0 ? <Empty>No endpoint was called yet.</Empty> : <EndpointTable endpoints={list.endpoints} />}
        </Card>
      ))}
      {count > 0 && (
        <Card
          title="A config with flows for them"
          actions={
            <>
              <button type="button" onClick={propose}>
                {config === null ? "Show" : "Refresh"}
              </button>
              {config !== null && <Copy label="Copy" text={() => config} />}
            </>
          }
        >
          {trouble && <Message tone="bad">{trouble}</Message>}
          {config !== null && (
            <pre tabIndex={0} class="text" aria-label="The proposed config">
              {config}
            </pre>
          )}
        </Card>
      )}
    </>
  );
}

const SORTS: Record<string, (endpoint: Endpoint) => number | string> = {
  path: ({ path }) => path,
  provider: ({ provider }) => provider,
  count: ({ count }) => count,
  p50: ({ p50_us }) => p50_us,
  p99: ({ p99_us }) => p99_us,
  last: ({ last_seen }) => last_seen,
};

export function EndpointTable({ endpoints }: { endpoints: Endpoint[] }) {
  const [filter, setFilter] = useState("");
  const [sort, setSort] = useState<Sort>({ key: "count", descending: true });
  const text = ({ method, path, provider, url }: Endpoint) => `${method} ${path} ${provider} ${url}`.toLowerCase();
  const wanted = endpoints.filter((endpoint) => text(endpoint).includes(filter.toLowerCase()));
  const shown = ordered(wanted, SORTS[sort.key]!, sort.descending).slice(0, ROWS_MAX);
  return (
    <>
      {endpoints.length > 8 && (
        <input
          type="search"
          aria-label="Filter endpoints"
          placeholder="Filter by method, path or provider"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      )}
      <Table
        label="Endpoints"
        rows={shown}
        rowKey={({ provider, url, method, path }) => `${provider} ${url} ${method} ${path}`}
        sort={sort}
        onSort={setSort}
        columns={[
          {
            key: "path",
            title: "Endpoint",
            sortable: true,
            class: "path",
            cell: ({ method, path }) => (
              <code>
                {method} {path}
              </code>
            ),
          },
          { key: "provider", title: "Provider", sortable: true, cell: ({ provider, url }) => (provider === "-" ? url : provider) },
          { key: "count", title: "Calls", numeric: true, sortable: true, cell: ({ count }) => <b>{whole(count)}</b> },
          { key: "statuses", title: "Statuses", cell: ({ statuses }) => <Statuses statuses={statuses} /> },
          { key: "p50", title: "p50", numeric: true, sortable: true, cell: ({ p50_us }) => time(p50_us) },
          { key: "p99", title: "p99", numeric: true, sortable: true, cell: ({ p99_us }) => time(p99_us) },
          { key: "last", title: "Last call", numeric: true, sortable: true, cell: ({ last_seen }) => day(new Date(last_seen)) },
        ]}
      />
      {wanted.length > shown.length && <p class="note">The first {whole(shown.length)} of {whole(wanted.length)}.</p>}
    </>
  );
}

export function Statuses({ statuses }: { statuses: Record<string, number> }) {
  const all = Object.entries(statuses).filter(([, count]) => count > 0);
  const text = all.map(([status, count]) => `${status === "0" ? "no response" : status}: ${whole(count)}`);
  return (
    <>
      <Stack parts={all.map(([status, count]) => [`s${status[0]} of-${status}`, count])} />
      <small>{text.join(" · ")}</small>
    </>
  );
}
