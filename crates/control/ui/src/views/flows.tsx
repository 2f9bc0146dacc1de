// Flows with their remedies, quotas, and accounts.
import { useState } from "preact/hooks";
import { type Account, type CacheStats, call, type Circuits, type Diagnosis, type Fault, type Flow, onlyReads, type Quota, type QuotaGroup, type Remedy } from "../api";
import { useCell } from "../cell";
import { bytes, day, dollars, percent, plural, time, until, whole } from "../format";
import { usePoll } from "../live";
import { Card, Confirm, Empty, Gauge, Message, OnlyReads, Pill, type Tone, Trouble } from "../parts/basics";
import { ordered, Table } from "../parts/table";
import { link } from "../route";

const PERIOD_MS = 2000;
const GROUPS_SHOWN = 12;

/** What a remedy did, as a sentence continues: "passed 12". */
const DONE: [string, string, string][] = [
  ["next", "passed on", "would pass on"],
  ["wait", "held back", "would hold back"],
  ["answer", "answered", "would answer"],
  ["repeat", "repeated", "would repeat"],
  ["fail", "failed to decide", "failed to decide"],
];
/** Other words for remedies whose decisions have a meaning of their own. */
const REFUSES: Record<string, [string, string]> = { answer: ["refused", "would refuse"] };
const DONE_BY: Record<string, Record<string, [string, string]>> = {
  limit: REFUSES,
  queue: REFUSES,
  concurrency: REFUSES,
  "provider-throttle": REFUSES,
  accounts: REFUSES,
  fallback: { repeat: ["called another target instead", "would call another target instead"], answer: ["answered instead", "would answer instead"] },
  "circuit-breaker": REFUSES,
};

interface FlowConfig {
  name: string;
  match?: Record<string, unknown>;
  when?: string;
  when_response?: string;
  enabled?: boolean;
}

export function Flows() {
  const flows = usePoll<{ flows: Flow[] }>("/api/v1/flows", PERIOD_MS);
  const config = usePoll<{ flows?: FlowConfig[] }>("/api/v1/config", 10_000);
  if (!flows.data) return flows.error ? <Trouble error={flows.error} again={flows.again} /> : <Empty>Loading…</Empty>;
  const all = flows.data.flows;
  return (
    <>
      <h1 class="hidden">Flows and quotas</h1>
      <Quotas />
      {all.length === 0 && (
        <Card title="Flows">
          <Empty>
            No flow is configured: Egret forwards every exchange unchanged. <a href={link("config")}>Add one in the config.</a>
          </Empty>
        </Card>
      )}
      <div class="flows">
        {all.map((flow) => (
          <FlowCard key={flow.name} flow={flow} config={config.data?.flows?.find(({ name }) => name === flow.name)} onChange={flows.again} />
        ))}
      </div>
      <Accounts />
    </>
  );
}

/** The quotas and flows of a provider: those that match it, and those that match any. */
export function FlowsOf({ provider }: { provider: string }) {
  const flows = usePoll<{ flows: Flow[] }>("/api/v1/flows", PERIOD_MS);
  const { data } = usePoll<{ flows?: FlowConfig[] }>("/api/v1/config", 10_000);
  const configs = (data?.flows ?? []).filter(({ match }) => applies([match?.["provider"] ?? []].flat(), provider));
  const shown = (flows.data?.flows ?? []).filter(({ name }) => configs.some((config) => config.name === name));
  const quotas = shown.flatMap(({ remedies }) => remedies.flatMap(({ quota }) => quota ?? []));
  if (shown.length === 0) return null;
  return (
    <>
      {quotas.length > 0 && <Quotas names={quotas} />}
      <div class="flows">
        {shown.map((flow) => (
          <FlowCard key={flow.name} flow={flow} config={configs.find(({ name }) => name === flow.name)} onChange={flows.again} />
        ))}
      </div>
    </>
  );
}

/** Whether one of the patterns is that of a provider. No pattern stands for all of them. */
function applies(patterns: unknown[], provider: string): boolean {
  const isOf = (pattern: string) => new RegExp(`^${pattern.split("*").map((part) => part.replace(/[^\w-]/g, "\\$&")).join(".*")}$`).test(provider);
  return patterns.length === 0 || patterns.some((pattern) => isOf(String(pattern)));
}

/** Writes a match in one line: `provider: stripe · path: /v1/*`. */
function matchText(config: FlowConfig | undefined): string {
  const text = (value: unknown): string =>
    Array.isArray(value)
      ? value.map(text).join(", ")
      : typeof value === "object" && value !== null
        ? Object.entries(value).map(([key, inner]) => `${key} ${text(inner)}`).join(", ")
        : String(value);
  const isSet = (value: unknown) => value !== null && (typeof value !== "object" || Object.keys(value as object).length > 0);
  const parts = Object.entries(config?.match ?? {}).filter(([, value]) => isSet(value)).map(([key, value]) => `${key}: ${text(value)}`);
  if (config?.when) parts.push(`when ${config.when}`);
  if (config?.when_response) parts.push(`when the response ${config.when_response}`);
  return parts.join(" · ") || "every exchange";
}

function FlowCard({ flow, config, onChange }: { flow: Flow; config: FlowConfig | undefined; onChange: () => void }) {
  const reports = flow.remedies.length > 0 && flow.remedies.every(({ mode }) => mode === "report");
  return (
    <Card
      title={flow.name}
      class="flow"
      note={<span class="match">{matchText(config)}</span>}
      actions={
        <>
          {reports && <Pill tone="note">report mode</Pill>}
          {flow.match_failures > 0 && <Pill tone="bad">{plural(flow.match_failures, "failure")} of `when`</Pill>}
        </>
      }
    >
      {reports && <p class="note">The remedies of this flow only report what they would do. Exchanges pass unchanged.</p>}
      {flow.remedies.length > 0 && (
        <ol class="remedies" aria-label="Remedies, outermost first">
          {flow.remedies.map((remedy) => (
            <RemedyItem key={remedy.remedy} flow={flow.name} remedy={remedy} onChange={onChange} />
          ))}
        </ol>
      )}
      {flow.diagnoses.length > 0 && (
        <ul class="diagnoses" aria-label="Diagnoses">
          {flow.diagnoses.map((diagnosis) => (
            <DiagnosisItem key={diagnosis.diagnosis} diagnosis={diagnosis} />
          ))}
        </ul>
      )}
      {flow.remedies.length + flow.diagnoses.length === 0 && <Empty>This flow has neither remedies nor diagnoses.</Empty>}
    </Card>
  );
}

function RemedyItem({ flow, remedy, onChange }: { flow: string; remedy: Remedy; onChange: () => void }) {
  const { mode, decisions, last_minute: minute, circuits, fault, hedges, queue, cache, script } = remedy;
  const words = DONE_BY[remedy.remedy.replace(/-\d+$/, "")];
  const isReport = mode === "report";
  const told = DONE.filter(([decision]) => (decisions[decision] ?? 0) > 0);
  return (
    <li>
      <div class="remedy-head">
        <h3>{remedy.remedy}</h3>
        {isReport && <Pill tone="note">reports only</Pill>}
        {circuits && <CircuitPill circuits={circuits} isReport={isReport} />}
        {fault && <FaultPill fault={fault} />}
      </div>
      <p class="does">{remedy.does}</p>
      <p class="decisions">
        {told.length === 0 && <span>no exchange so far</span>}
        {told.map(([decision, did, would]) => (
          <span key={decision} class={`decision ${decision}`}>
            {words?.[decision]?.[isReport ? 1 : 0] ?? (isReport ? would : did)} <b>{whole(decisions[decision]!)}</b>
            {(minute[decision] ?? 0) > 0 && <small> {whole(minute[decision]!)} in the last minute</small>}
          </span>
        ))}
        {remedy.waits > 0 && (
          <span>
            mean wait <b>{time(remedy.waited_us / remedy.waits)}</b>
          </span>
        )}
      </p>
      {queue && (
        <Gauge
          label="Waiting"
          value={queue.waiting}
          max={queue.size}
          text={`${whole(queue.waiting)} of ${whole(queue.size)}${queue.waiting > 0 ? `, the oldest for ${time(queue.oldest_us)}` : ""}`}
        />
      )}
      {hedges && <Hedges hedges={hedges} isReport={isReport} />}
      {circuits && circuits.transitions.length > 0 && <Transitions circuits={circuits} isReport={isReport} />}
      {fault && <FaultPart flow={flow} remedy={remedy.remedy} fault={fault} onSwitch={onChange} />}
      {cache && <CachePart flow={flow} cache={cache} onPurge={onChange} />}
      {script && script.overruns + script.rests > 0 && (
        <p class="note">
          {plural(script.overruns, "overrun")}, {plural(script.rests, "rest")}
        </p>
      )}
    </li>
  );
}

function CircuitPill({ circuits, isReport }: { circuits: Circuits; isReport: boolean }) {
  const would = isReport ? "would be " : "";
  if (circuits.open > 0) {
    const left = circuits.until_us === null ? "" : ` for ${until(circuits.until_us)}`;
    const text = circuits.open === 1 ? `${would}open${left}` : `${whole(circuits.open)} circuits ${would}open${left}`;
    return <Pill tone={isReport ? "warn" : "bad"}>{text}</Pill>;
  }
  if (circuits.half_open > 0) return <Pill tone="warn">{`${would}half-open: probing`}</Pill>;
  return <Pill tone="good">{`${would}closed`}</Pill>;
}

const STATES: Record<string, Tone> = { open: "bad", closed: "good", "half-open": "warn" };

/** The last changes of the circuits, the newest first. */
function Transitions({ circuits, isReport }: { circuits: Circuits; isReport: boolean }) {
  const { transitions, transitions_count: count } = circuits;
  return (
    <details class="history">
      <summary>
        {isReport ? "Changes that it would have made" : "Changes"}: {whole(count)}
      </summary>
      {count > transitions.length && <p class="note">The last {whole(transitions.length)}.</p>}
      <ol class="transitions" tabIndex={0} aria-label="Changes of the circuits, newest first">
        {transitions.map(({ at_us, provider, to, until_us, reason, outcome }) => (
          <li key={`${at_us} ${provider} ${to}`}>
            <time dateTime={new Date(at_us / 1000).toISOString()}>{day(new Date(at_us / 1000))}</time>{" "}
            <Pill tone={STATES[to] ?? "calm"}>{to}</Pill> <b>{provider}</b>: {reason}
            {outcome && ` (${outcome})`}
            {until_us !== null && `, for ${time(until_us - at_us)}`}
          </li>
        ))}
      </ol>
    </details>
  );
}

function Hedges({ hedges, isReport }: { hedges: NonNullable<Remedy["hedges"]>; isReport: boolean }) {
  const told: [string, number][] = isReport
    ? [["would hedge", hedges.slow], ["skipped (budget)", hedges.over_budget]]
    : [["hedged", hedges.made], ["won", hedges.used], ["skipped (budget)", hedges.over_budget]];
  return (
    <p class="decisions">
      {told.map(([text, count]) => (
        <span key={text}>
          {text} <b>{whole(count)}</b>
        </span>
      ))}
    </p>
  );
}

const FAULT_STATES: Record<Fault["state"], Tone> = { on: "bad", ended: "calm", off: "calm" };

function FaultPill({ fault }: { fault: Fault }) {
  const left = fault.state === "on" && fault.until_us !== null ? ` for ${until(fault.until_us)}` : "";
  return <Pill tone={FAULT_STATES[fault.state]}>{`${fault.state}${left}`}</Pill>;
}

/** The injected failures, and the switch. */
function FaultPart({ flow, remedy, fault, onSwitch }: { flow: string; remedy: string; fault: Fault; onSwitch: () => void }) {
  const [failure, tell] = useState<string | null>(null);
  const reads = useCell(onlyReads);
  const set = async (to: string) => {
    try {
      await call(`/api/v1/faults/${to}flow=${encodeURIComponent(flow)}&remedy=${encodeURIComponent(remedy)}`, { method: "POST" });
      tell(null);
    } catch (error) {
      tell((error as Error).message);
    }
    onSwitch();
  };
  return (
    <div class="fault-part">
      <p class="decisions">
        {Object.entries(fault.injected)
          .filter(([, count]) => count > 0)
          .map(([kind, count]) => (
            <span key={kind}>
              {kind} <b>{whole(count)}</b>
            </span>
          ))}
        {fault.state === "on" ? (
          <button type="button" disabled={reads} onClick={() => set("off?")}>
            Switch off
          </button>
        ) : (
          <Confirm label="Switch on for 10 minutes" question={`Let calls of ${flow} fail?`} disabled={reads} act={() => set("on?for=10m&")} />
        )}
      </p>
      <OnlyReads />
      {failure && <Message tone="bad">{failure}</Message>}
    </div>
  );
}

function CachePart({ flow, cache, onPurge }: { flow: string; cache: CacheStats; onPurge: () => void }) {
  const [result, tell] = useState<{ tone: "good" | "bad"; text: string } | null>(null);
  const { counts, hit_ratio: ratio } = cache;
  const reads = useCell(onlyReads);
  const purge = async () => {
    try {
      const response = await call(`/api/v1/cache/purge?all=true&flow=${encodeURIComponent(flow)}`, { method: "POST" });
      const { purged, told, reason } = await response.json();
      const others = told === false ? ` The other gateways were not told: ${reason}.` : "";
      tell({ tone: told === false ? "bad" : "good", text: `${plural(purged, "response")} removed.${others}` });
    } catch (error) {
      tell({ tone: "bad", text: (error as Error).message });
    }
    onPurge();
  };
  return (
    <div class="cache-part">
      <Gauge label="Hit ratio" value={ratio ?? 0} max={1} tone="calm" text={ratio === null ? "no request yet" : percent(ratio)} />
      <p class="decisions">
        {Object.entries(counts)
          .filter(([, count]) => count > 0)
          .map(([name, count]) => (
            <span key={name}>
              {name} <b>{whole(count)}</b>
            </span>
          ))}
      </p>
      <p class="cache-size">
        <span>
          {plural(cache.entries, "response")} in memory, {bytes(cache.bytes)}
          {cache.disk && `; ${whole(cache.disk.entries)} on disk, ${bytes(cache.disk.bytes)}${cache.disk.is_open ? "" : " (the disk does not work)"}`}
        </span>
        <Confirm label="Purge" question={`Remove all stored responses of ${flow}?`} disabled={reads} act={purge} />
      </p>
      <OnlyReads />
      {result && <Message tone={result.tone}>{result.text}</Message>}
    </div>
  );
}

function DiagnosisItem({ diagnosis }: { diagnosis: Diagnosis }) {
  const lost: [string, number][] = [
    ["dropped", diagnosis.dropped],
    ["shed", diagnosis.shed],
    ["failed", diagnosis.failed],
    ["skipped", diagnosis.skipped],
    ["queued", diagnosis.queued],
  ];
  return (
    <li>
      <h3>{diagnosis.diagnosis}</h3>
      <p class="does">{diagnosis.does}</p>
      <p class="decisions">
        <span>
          recorded <b>{whole(diagnosis.recorded)}</b>
        </span>
        {lost.filter(([, count]) => count > 0).map(([name, count]) => (
          <span key={name} class={name === "skipped" || name === "queued" ? "" : "decision fail"}>
            {name} <b>{whole(count)}</b>
          </span>
        ))}
      </p>
    </li>
  );
}

function Quotas({ names }: { names?: string[] }) {
  const { data, error, again } = usePoll<{ quotas: Quota[] }>("/api/v1/quotas", PERIOD_MS);
  if (error && !data) return <Trouble error={error} again={again} />;
  const shown = (data?.quotas ?? []).filter(({ name }) => names === undefined || names.includes(name));
  if (shown.length === 0) return null;
  return (
    <Card title="Quotas">
      <div class="quotas">
        {shown.map((quota) => (
          <QuotaPart key={quota.name} quota={quota} />
        ))}
      </div>
    </Card>
  );
}

export function QuotaPart({ quota }: { quota: Quota }) {
  const [filter, setFilter] = useState("");
  const fullest = (one: QuotaGroup, other: QuotaGroup) => other.used / other.limit - one.used / one.limit;
  const wanted = quota.groups.filter(({ name }) => name.includes(filter)).sort(fullest);
  const shown = wanted.slice(0, GROUPS_SHOWN);
  const amount = quota.unit === "usd" ? dollars : whole;
  return (
    <div class="quota">
      <div class="remedy-head">
        <h3>{quota.name}</h3>
        <Pill tone="calm">{quota.kind}</Pill>
        {quota.groups_count > 1 && <small>{plural(quota.groups_count, "group")}</small>}
      </div>
      {quota.groups_count > GROUPS_SHOWN && (
        <input
          type="search"
          aria-label={`Filter the groups of ${quota.name}`}
          placeholder="Filter groups"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      )}
      {quota.groups.length === 0 && <p class="note">Nothing has been drawn from it yet.</p>}
      {shown.map((group) => (
        <div key={group.name}>
          <Gauge
            label={group.name || (quota.groups_count > 1 ? "without a value" : "all")}
            value={group.used}
            max={group.limit}
            text={`${amount(group.used)} of ${amount(group.limit)}${quota.unit === "usd" && group.reserved > 0 ? ` · ${amount(group.reserved)} of it reserved` : ""}${group.used > 0 && group.reset_us > Date.now() * 1000 ? ` · all free in ${until(group.reset_us)}` : ""}`}
          />
          {group.store_failed && <Pill tone="bad">the store does not respond</Pill>}
        </div>
      ))}
      {quota.groups_count > shown.length && <p class="note">The {whole(shown.length)} fullest of {whole(quota.groups_count)}.</p>}
    </div>
  );
}

function Accounts() {
  const { data } = usePoll<{ accounts: Account[]; accounts_count: number }>("/api/v1/accounts", PERIOD_MS);
  if (!data || data.accounts_count === 0) return null;
  const { accounts, accounts_count: count } = data;
  return (
    <Card title="Accounts" note={count > accounts.length ? `the first ${whole(accounts.length)} of ${whole(count)}` : plural(count, "account")}>
      <AccountTable accounts={accounts} />
    </Card>
  );
}

/** Calls of an account that were refused or got no response. */
const troubled = ({ refused, failed }: Account) => failed + Object.values(refused).reduce((sum, count) => sum + count, 0);

/** Accounts, those in trouble first. */
export function AccountTable({ accounts }: { accounts: Account[] }) {
  return (
    <Table
      label="Accounts"
      rows={ordered([...accounts], (account) => (1e12 * troubled(account)) / Math.max(1, account.calls) + account.calls, true)}
      rowKey={({ name }) => name}
      columns={[
        {
          key: "name",
          title: "Account",
          cell: ({ name, kind }) => (
            <>
              {name} <small>{kind}</small>
            </>
          ),
        },
        { key: "providers", title: "Providers", cell: ({ providers }) => providers.join(", ") },
        { key: "state", title: "State", cell: (account) => <AccountState account={account} /> },
        { key: "in_flight", title: "In flight", numeric: true, cell: ({ in_flight }) => whole(in_flight) },
        { key: "calls", title: "Calls", note: "since start", numeric: true, cell: ({ calls }) => whole(calls) },
        {
          key: "refused",
          title: "Refused",
          note: "since start",
          cell: ({ refused }) =>
            Object.entries(refused).filter(([, count]) => count > 0).map(([status, count]) => `${status}: ${whole(count)}`).join(" · ") || "–",
        },
        {
          key: "remaining",
          title: "Remaining",
          note: "as the provider reports",
          numeric: true,
          cell: ({ remaining }) => (remaining === null ? "–" : whole(remaining)),
        },
      ]}
    />
  );
}

function AccountState({ account }: { account: Account }) {
  if (account.state === "cooling" && account.until_us !== null) {
    return <Pill tone="warn">{`cooling for ${until(account.until_us)} (${account.reason})`}</Pill>;
  }
  if (account.token?.trouble) return <Pill tone="bad">{`token: ${account.token.trouble}`}</Pill>;
  return <Pill tone="good">usable</Pill>;
}
