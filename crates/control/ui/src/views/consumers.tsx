// Who calls: the consumers of each provider, with their calls, failures and refusals.
import { useState } from "preact/hooks";
import type { Consumer, Discovered } from "../api";
import { sum } from "../figures";
import { day, percent, plural, time, whole } from "../format";
import { usePoll } from "../live";
import { Card } from "../parts/basics";
import { ordered, type Sort, Table } from "../parts/table";
import { Statuses } from "./records";

const ROWS_MAX = 50;

const SORTS: Record<string, (row: Consumer) => number | string> = {
  consumer: ({ consumer }) => consumer,
  provider: ({ provider }) => provider,
  count: ({ count }) => count,
  failed: (row) => failed(row) / row.count,
  p99: ({ p99_us }) => p99_us,
  last: ({ last_seen }) => last_seen,
};

/** Number of calls that failed: 429, 5xx, or without a response. */
function failed({ statuses }: Consumer): number {
  const counts = Object.entries(statuses).filter(([status]) => status === "0" || status === "429" || status >= "500");
  return sum(counts.map(([, count]) => count));
}

/** Nothing is shown unless a client has named a consumer. */
export function Consumers({ traffic }: { traffic: boolean }) {
  const discovery = usePoll<{ flows: Discovered[] }>("/api/v1/discovery", 5000);
  const [sort, setSort] = useState<Sort>({ key: "count", descending: true });
  const all = (discovery.data?.flows ?? []).find(({ flow }) => flow === "");
  const rows = all?.consumers ?? [];
  if (!rows.some(({ consumer }) => consumer !== "")) return null;
  const shown = ordered([...rows], SORTS[sort.key]!, sort.descending).slice(0, ROWS_MAX);
  const hidden = rows.length - shown.length;
  return (
    <Card title="Consumers" note={hidden > 0 ? `${whole(shown.length)} of ${whole(rows.length)}, since start` : "since start"}>
      <Table
        label="Consumers"
        rows={shown}
        rowKey={({ consumer, provider }) => `${consumer} ${provider}`}
        sort={sort}
        onSort={setSort}
        columns={[
          {
            key: "consumer",
            title: "Consumer",
            sortable: true,
            cell: ({ consumer }) =>
              consumer === "" ? <small>no name</small> : traffic ? <a href={`#/traffic?consumer=${encodeURIComponent(consumer)}`}>{consumer}</a> : consumer,
          },
          { key: "provider", title: "Provider", sortable: true, cell: ({ provider }) => (provider === "-" ? "other hosts" : provider) },
          { key: "count", title: "Calls", numeric: true, sortable: true, cell: ({ count }) => <b>{whole(count)}</b> },
          {
            key: "failed",
            title: "Failed",
            help: "429, 5xx, or no response",
            numeric: true,
            sortable: true,
            cell: (row) => (failed(row) > 0 ? percent(failed(row) / row.count) : <small>none</small>),
          },
          { key: "statuses", title: "Statuses", cell: ({ statuses }) => <Statuses statuses={statuses} /> },
          { key: "p99", title: "p99", numeric: true, sortable: true, cell: ({ p99_us }) => time(p99_us) },
          { key: "last", title: "Last call", numeric: true, sortable: true, cell: ({ last_seen }) => day(new Date(last_seen)) },
        ]}
      />
      {all !== undefined && all.other_consumers > 0 && <p class="note">{plural(all.other_consumers, "call")} of consumers that are not listed.</p>}
    </Card>
  );
}
