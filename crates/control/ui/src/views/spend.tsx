// Where the money goes: the costs of calls by consumer, model, provider, flow or label, and the budgets.
import { useEffect } from "preact/hooks";
import { ApiError, type Quota, type QuotaGroup, type SpendList, type SpendSum } from "../api";
import { useKept } from "../cell";
import { day, dollars, exactly, percent, plural, until, whole } from "../format";
import { usePoll } from "../live";
import { Card, Copy, Empty, Gauge, Trouble } from "../parts/basics";
import { Stack } from "../parts/charts";
import { Table } from "../parts/table";
import { link } from "../route";
import { QuotaPart } from "./flows";

const PERIOD_MS = 3000;

const KINDS: [string, string][] = [["consumer", "Consumer"], ["model", "Model"], ["provider", "Provider"], ["flow", "Flow"]];
const RANGES: [string, string][] = [["hour", "last hour"], ["day", "last 24 hours"], ["month", "last 31 days"]];

/** What is added to a config, so that costs are summed. */
const SETUP = "flows:\n  - name: spend\n    diagnoses: [ledger]\n";
/** Makes a table of prices, which gives calls of language models a cost. */
const IMPORT = "egret prices import model_prices_and_context_window.json";

interface QuotaConfigs {
  quotas?: Record<string, { group_by?: string }>;
}

export function Spend() {
  const [by, setBy] = useKept("spend-by", "consumer");
  const [range, setRange] = useKept("spend-range", "day");
  const { data, error, again } = usePoll<SpendList>(`/api/v1/spend?by=${encodeURIComponent(by)}&range=${range}`, PERIOD_MS);
  const quotas = usePoll<{ quotas: Quota[] }>("/api/v1/quotas", PERIOD_MS);
  const config = usePoll<QuotaConfigs>("/api/v1/config", 10_000);
  const budgets = (quotas.data?.quotas ?? []).filter(({ unit }) => unit === "usd");
  // A restart forgets the labels.
  const isGone = error instanceof ApiError && error.status === 404;
  useEffect(() => {
    if (isGone) setBy("consumer");
  }, [isGone]);
  if (!data) return error && !isGone ? <Trouble error={error} again={again} /> : <Empty>Loading…</Empty>;
  const kinds = [...KINDS, ...data.labels.map((name): [string, string] => [`label.${name}`, `Label ${name}`])];
  const title = kinds.find(([kind]) => kind === data.by)?.[1] ?? "Name";
  const grouped = budgets.filter(({ name }) => config.data?.quotas?.[name]?.group_by === data.by);
  return (
    <>
      <h1 class="hidden">Spend</h1>
      <Card
        title="Spend"
        note={data.since_us === null ? "" : `summed since ${day(new Date(data.since_us / 1000))}`}
        actions={
          data.total.calls > 0 || data.since_us !== null ? (
            <>
              <Choice label="Sum by" value={by} set={setBy} options={kinds} />
              <Choice label="Time" value={range} set={setRange} options={RANGES} />
            </>
          ) : undefined
        }
      >
        {data.total.calls > 0 ? <Costs data={data} title={title} budgets={grouped} /> : <Nothing data={data} />}
      </Card>
      {budgets.length > 0 && (
        <Card title="Budgets" note="quotas of money">
          <div class="quotas">
            {budgets.map((quota) => (
              <QuotaPart key={quota.name} quota={quota} />
            ))}
          </div>
        </Card>
      )}
    </>
  );
}

function Choice({ label, value, set, options }: { label: string; value: string; set: (value: string) => void; options: [string, string][] }) {
  return (
    <label class="inline">
      <span class="hidden">{label}</span>
      <select value={value} onChange={(event) => set(event.currentTarget.value)}>
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Says why there are no costs, and what to do. */
function Nothing({ data }: { data: SpendList }) {
  if (data.has_ledger && data.since_us !== null) return <Empty>No call of this time has a cost.</Empty>;
  const [text, command, after]: [string, string, string] = data.has_ledger
    ? ["No call has had a cost so far. Calls of language models have one if their model has a price:", IMPORT, "Then name the table as prices.file."]
    : ["No flow sums costs. This flow sums those of all calls:", SETUP, "Add it to the config."];
  return (
    <>
      <p>{text}</p>
      <pre class="text setup" tabIndex={0} aria-label={data.has_ledger ? "The command" : "The flow"}>
        {command}
      </pre>
      <p>
        <Copy label="Copy" text={() => command} /> {after} <a href={link("config")}>Show the config</a>
      </p>
    </>
  );
}

/** A row: `name` is null for all names without a row. */
type Row = SpendSum & { name: string | null };

const UNNAMED: Record<string, string> = { consumer: "no name", model: "no model" };

function nameOf({ name }: Row, by: string) {
  if (name === null) return <small>all others</small>;
  if (name === "") return <small>{UNNAMED[by] ?? "no value"}</small>;
  return by === "provider" && name === "-" ? "other hosts" : name;
}

function Costs({ data, title, budgets }: { data: SpendList; title: string; budgets: Quota[] }) {
  const { by, rows, other, total } = data;
  const all: Row[] = other.calls > 0 ? [...rows, { ...other, name: null }] : rows;
  const share = (cost: number) => (total.cost_nanodollars > 0 ? cost / total.cost_nanodollars : 0);
  const groupsOf = (name: string | null) =>
    budgets.flatMap((quota) => quota.groups.filter((group) => group.name === name).map((group): [Quota, QuotaGroup] => [quota, group]));
  return (
    <>
      <p class="figure" title={exactly(total.cost_nanodollars)}>
        {dollars(total.cost_nanodollars)}
        <span>in {plural(total.calls, "call")}</span>
      </p>
      <Table
        label="Spend"
        rows={all}
        rowKey={({ name }) => (name === null ? "others" : `name ${name}`)}
        columns={[
          { key: "name", title, cell: (row) => nameOf(row, by) },
          { key: "cost", title: "Cost", numeric: true, cell: ({ cost_nanodollars: cost }) => <b title={exactly(cost)}>{dollars(cost)}</b> },
          {
            key: "share",
            title: "Share",
            cell: ({ cost_nanodollars: cost }) => (
              <>
                <Stack parts={[["share", cost], ["rest", total.cost_nanodollars - cost]]} />
                <small>{percent(share(cost))}</small>
              </>
            ),
          },
          { key: "calls", title: "Calls", numeric: true, cell: ({ calls }) => whole(calls) },
          ...(budgets.length > 0
            ? [
                {
                  key: "budget",
                  title: "Budget",
                  cell: ({ name }: Row) => {
                    const gauges = groupsOf(name).map(([quota, { used, limit, reset_us }]) => (
                      <Gauge
                        key={quota.name}
                        label={quota.name}
                        value={used}
                        max={limit}
                        text={`${dollars(used)} of ${dollars(limit)}${reset_us > Date.now() * 1000 ? `, resets in ${until(reset_us)}` : ""}`}
                      />
                    ));
                    return gauges.length > 0 ? gauges : <small>none</small>;
                  },
                },
              ]
            : []),
        ]}
      />
    </>
  );
}
