// Whom the calls belong to: sums by consumer, endpoint, account, or a label of a ledger, those in trouble first.
import { useEffect } from "preact/hooks";
import { type Account, ApiError, type Consumer, type Discovered, type SpendList } from "../api";
import { useKept } from "../cell";
import { dollars, exactly, plural, whole } from "../format";
import { usePoll } from "../live";
import { Card } from "../parts/basics";
import { CallsTable } from "../parts/calls";
import { Table } from "../parts/table";
import { AccountTable } from "./flows";
import { EndpointTable } from "./records";

const PERIOD_MS = 5000;
const TITLES: Record<string, string> = { consumer: "Consumers", endpoint: "Endpoints", account: "Accounts" };

export function Groups({ traffic }: { traffic: boolean }) {
  const [chosen, choose] = useKept("groups-by", "");
  const discovery = usePoll<{ flows: Discovered[] }>("/api/v1/discovery", PERIOD_MS);
  const accounts = usePoll<{ accounts: Account[] }>("/api/v1/accounts", PERIOD_MS).data?.accounts ?? [];
  const spend = useSpend(chosen, choose);
  const all = (discovery.data?.flows ?? []).find(({ flow }) => flow === "");
  const isNamed = all?.consumers.some(({ consumer }) => consumer !== "") ?? false;
  const kinds = [
    ...(isNamed ? ["consumer"] : []),
    ...((all?.endpoints.length ?? 0) > 0 ? ["endpoint"] : []),
    ...(accounts.length > 0 ? ["account"] : []),
    ...(spend?.labels ?? []).map((name) => `label.${name}`),
  ];
  const by = kinds.includes(chosen) ? chosen : kinds[0];
  if (by === undefined) return null;
  const title = (kind: string) => TITLES[kind] ?? `By ${kind.replace("label.", "label ")}`;
  return (
    <Card
      title={title(by)}
      note="since start"
      actions={
        <label class="inline">
          <span class="hidden">Group calls by</span>
          <select value={by} onChange={(event) => choose(event.currentTarget.value)}>
            {kinds.map((kind) => (
              <option key={kind} value={kind}>
                {title(kind)}
              </option>
            ))}
          </select>
        </label>
      }
    >
      {by === "consumer" && <Consumers rows={all!.consumers} others={all!.other_consumers} traffic={traffic} />}
      {by === "endpoint" && <EndpointTable endpoints={all!.endpoints} by="failed" />}
      {by === "account" && <AccountTable accounts={accounts} />}
      {spend?.by === by && <Labels spend={spend} />}
    </Card>
  );
}

/** The sums by the chosen label, and the names of all labels. */
function useSpend(chosen: string, choose: (kind: string) => void): SpendList | null {
  const by = chosen.startsWith("label.") ? chosen : "consumer";
  const { data, error } = usePoll<SpendList>(`/api/v1/spend?by=${encodeURIComponent(by)}&range=day`, PERIOD_MS);
  // A restart forgets the labels.
  const isGone = error instanceof ApiError && error.status === 404;
  useEffect(() => {
    if (isGone && chosen !== "") choose("");
  }, [isGone]);
  return data;
}

function Consumers({ rows, others, traffic }: { rows: Consumer[]; others: number; traffic: boolean }) {
  return (
    <>
      <CallsTable
        label="Consumers"
        rows={rows}
        text={({ consumer }) => consumer}
        provider={({ provider }) => (provider === "-" ? "other hosts" : provider)}
        name={{
          title: "Consumer",
          cell: ({ consumer }) =>
            consumer === "" ? <small>no name</small> : traffic ? <a href={`#/traffic?consumer=${encodeURIComponent(consumer)}`}>{consumer}</a> : consumer,
        }}
      />
      {others > 0 && <p class="note">{plural(others, "call")} of consumers that are not listed.</p>}
    </>
  );
}

function Labels({ spend }: { spend: SpendList }) {
  return (
    <Table
      label="Labels"
      rows={spend.rows}
      rowKey={({ name }) => name}
      columns={[
        { key: "name", title: "Value", note: "last 24 hours", cell: ({ name }) => (name === "" ? <small>no value</small> : name) },
        { key: "calls", title: "Calls", numeric: true, cell: ({ calls }) => <b>{whole(calls)}</b> },
        { key: "cost", title: "Cost", numeric: true, cell: ({ cost_nanodollars: cost }) => <span title={exactly(cost)}>{dollars(cost)}</span> },
      ]}
    />
  );
}
