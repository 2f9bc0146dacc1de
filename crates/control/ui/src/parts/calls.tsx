// A table of calls that were counted under a name: an endpoint or a consumer.
import { useState } from "preact/hooks";
import { sum } from "../figures";
import { day, percent, time, whole } from "../format";
import { Stack } from "./charts";
import { type Column, ordered, type Sort, Table } from "./table";

const ROWS_MAX = 300;
/** Rows from which on a filter is offered. */
const FILTERED_MIN = 8;

/** Calls with what they share. */
export interface Called {
  provider: string;
  count: number;
  statuses: Record<string, number>;
  p50_us: number;
  p99_us: number;
  last_seen: string;
}

/** Number of calls that failed: 429, 5xx, or without a response. */
function failed({ statuses }: Called): number {
  const counts = Object.entries(statuses).filter(([status]) => status === "0" || status === "429" || status >= "500");
  return sum(counts.map(([, count]) => count));
}

const SORTS: Record<string, (row: Called) => number | string> = {
  provider: ({ provider }) => provider,
  count: ({ count }) => count,
  // Those in trouble first, and the others by their calls: no count reaches the factor.
  failed: (row) => (1e12 * failed(row)) / row.count + row.count,
  p50: ({ p50_us }) => p50_us,
  p99: ({ p99_us }) => p99_us,
  last: ({ last_seen }) => last_seen,
};

interface Props<T extends Called> {
  label: string;
  rows: T[];
  /** The first column, and its text, by which rows are sorted and filtered. */
  name: Omit<Column<T>, "key">;
  text: (row: T) => string;
  provider: (row: T) => string;
  /** The column by which rows are sorted at first, the highest first. */
  by?: "count" | "failed";
}

export function CallsTable<T extends Called>({ label, rows, name, text, provider, by = "failed" }: Props<T>) {
  const [filter, setFilter] = useState("");
  const [sort, setSort] = useState<Sort>({ key: by, descending: true });
  const all = (row: T) => `${text(row)} ${provider(row)}`.toLowerCase();
  const wanted = rows.filter((row) => all(row).includes(filter.toLowerCase()));
  const read = sort.key === "name" ? text : SORTS[sort.key]!;
  const shown = ordered(wanted, read, sort.descending).slice(0, ROWS_MAX);
  return (
    <>
      {rows.length > FILTERED_MIN && (
        <input
          type="search"
          aria-label={`Filter ${label.toLowerCase()}`}
          placeholder="Filter by name or provider"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      )}
      <Table
        label={label}
        rows={shown}
        rowKey={all}
        sort={sort}
        onSort={setSort}
        columns={[
          { sortable: true, ...name, key: "name" },
          { key: "provider", title: "Provider", sortable: true, cell: provider },
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
          { key: "p50", title: "p50", numeric: true, sortable: true, cell: ({ p50_us }) => time(p50_us) },
          { key: "p99", title: "p99", numeric: true, sortable: true, cell: ({ p99_us }) => time(p99_us) },
          { key: "last", title: "Last call", numeric: true, sortable: true, cell: ({ last_seen }) => day(new Date(last_seen)) },
        ]}
      />
      {wanted.length > shown.length && (
        <p class="note">
          The first {whole(shown.length)} of {whole(wanted.length)}.
        </p>
      )}
    </>
  );
}

function Statuses({ statuses }: { statuses: Record<string, number> }) {
  const all = Object.entries(statuses).filter(([, count]) => count > 0);
  const text = all.map(([status, count]) => `${status === "0" ? "no response" : status}: ${whole(count)}`);
  return (
    <>
      <Stack parts={all.map(([status, count]) => [`s${status[0]} of-${status}`, count])} />
      <small>{text.join(" · ")}</small>
    </>
  );
}
