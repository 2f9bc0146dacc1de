// What leaves Egret as records, and what it has seen called.
import { useState } from "preact/hooks";
import { type Discovered, type Endpoint, type Exporter, readText } from "../api";
import { bytes, plural, whole } from "../format";
import { usePoll } from "../live";
import { Card, Copy, Empty, Message, Pill, Trouble } from "../parts/basics";
import { CallsTable } from "../parts/calls";
import { Table } from "../parts/table";

const PERIOD_MS = 3000;

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

/** Endpoints, those with the most calls first, or with the most trouble. */
export function EndpointTable({ endpoints, by = "count" }: { endpoints: Endpoint[]; by?: "count" | "failed" }) {
  return (
    <CallsTable
      label="Endpoints"
      rows={endpoints}
      by={by}
      text={({ method, path }) => `${method} ${path}`}
      provider={({ provider, url }) => (provider === "-" ? url : provider)}
      name={{
        title: "Endpoint",
        class: "path",
        cell: ({ method, path }) => (
          <code>
            {method} {path}
          </code>
        ),
      }}
    />
  );
}
