// The control page: the frame, the choice of the view, and what all views share.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { read, takeToken, token } from "./api";
import { useCell, useKept } from "./cell";
import { clock, duration, zone } from "./format";
import { findings, live, retry, start } from "./live";
import { Empty, Message, type Tone, TokenForm } from "./parts/basics";
import { theme } from "./parts/charts";
import { Findings, worst } from "./parts/findings";
import { Jump } from "./parts/jump";
import { link, route } from "./route";
import { Config } from "./views/config";
import { ExchangeView } from "./views/exchange";
import { Flows } from "./views/flows";
import { Overview } from "./views/overview";
import { Provider } from "./views/provider";
import { Records } from "./views/records";
import { Spend } from "./views/spend";
import { Traffic } from "./views/traffic";

/** Each view with its name, and what is added to the name where there is room. */
const VIEWS: [string, string, string][] = [
  ["overview", "Overview", ""],
  ["traffic", "Traffic", ""],
  ["flows", "Flows", " and quotas"],
  ["spend", "Spend", ""],
  ["records", "Records", " and discovery"],
  ["config", "Config", ""],
];

interface TrafficConfig {
  control?: { traffic?: { entries: number } };
}

/**
 * Returns whether the gateway has live traffic, or null until that is known. It asks for the config, because a
 * request for traffic would have it recorded.
 */
function useTraffic(): boolean | null {
  const [has, set] = useState<boolean | null>(null);
  const { access, moments } = useCell(live);
  const isUp = access === "open" && moments !== null;
  useEffect(() => {
    if (!isUp) return;
    read<TrafficConfig>("/api/v1/config")
      .then(({ control }) => set((control?.traffic?.entries ?? 0) > 0))
      .catch((error) => console.debug(error));
  }, [isUp]);
  return has;
}

function App() {
  const { moments, awaySince, access } = useCell(live);
  const { view, of } = useCell(route);
  const traffic = useTraffic();
  const main = useRef<HTMLElement>(null);
  const views = VIEWS.filter(([name]) => name !== "traffic" || traffic);
  const active = { provider: "overview", failure: "traffic" }[view] ?? view;
  const title = VIEWS.find(([name]) => name === active)?.[1] ?? "Overview";
  useEffect(() => {
    document.title = `${of ?? title} · Egret`;
  }, [title, of]);
  useShortcuts();
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to the content
      </a>
      <Header />
      {access === "open" && (
        <nav aria-label="Views">
          {views.map(([name, text, more]) => (
            <a key={name} href={link(name)} {...(name === active ? { "aria-current": "page" as const } : {})}>
              {text}
              {more && <span>{more}</span>}
            </a>
          ))}
        </nav>
      )}
      {access === "open" && <Jump views={views.map(([view, name]) => [view, name])} traffic={traffic === true} />}
      <main id="main" ref={main} tabIndex={-1} class={awaySince ? "stale" : ""}>
        {awaySince && (
          <Message tone="bad">
            Lost contact with Egret at {clock(awaySince)}. The figures are from then.
          </Message>
        )}
        {access === "open" && moments && <Findings />}
        {access !== "open" ? (
          <TokenForm refused={access === "refused"} everything onToken={retry} />
        ) : moments ? (
          <View view={view} of={of} traffic={traffic} />
        ) : (
          <Empty>{awaySince ? "No figures yet." : "Loading…"}</Empty>
        )}
      </main>
    </>
  );
}

function View({ view, of, traffic }: { view: string; of: string | null; traffic: boolean | null }) {
  const moments = live.value.moments!;
  switch (view) {
    case "traffic":
      if (traffic === null) return <Empty>Loading…</Empty>;
      if (!traffic) return <Empty>Live traffic is switched off: <code>control.traffic.entries</code> is 0.</Empty>;
      return of === null ? <Traffic /> : <ExchangeView key={of} id={of} list="traffic" />;
    case "failure":
      return <ExchangeView key={of} id={of ?? ""} list="failures" />;
    case "flows":
      return <Flows />;
    case "spend":
      return <Spend />;
    case "records":
      return <Records />;
    case "config":
      return <Config />;
    case "provider":
      return <Provider key={of} moments={moments} name={of ?? ""} traffic={traffic === true} />;
    default:
      return <Overview moments={moments} traffic={traffic === true} />;
  }
}

function Header() {
  const { moments, awaySince, access } = useCell(live);
  const wrong = worst(useCell(findings)?.findings ?? []);
  const stats = moments?.now.stats;
  const [tone, text]: [Tone, string] =
    access !== "open"
      ? ["warn", "token needed"]
      : awaySince
        ? ["bad", "not reachable"]
        : stats === undefined
          ? ["calm", "connecting"]
          : stats.ready
            ? (wrong ?? ["good", "ready"])
            : ["warn", "starting or draining"];
  return (
    <header>
      <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="7" />
        <path d="M6 8.4 12.6 6.2c.9-1 2.3-1.5 3.6-1 2.3.9 2.5 3.6.9 5.4-2 2.2-2.4 3.7.3 5.2 3.8 2 6.3 4.4 9.1 8.6-5.8.3-13-.2-14.1-5.4-.6-3 1.2-5.2 1.9-7.3.6-1.7-.2-2.7-1.7-2.6z" />
        <path class="leg" d="M17.500 23.500v5m2.600-4.700v4.700" />
      </svg>
      <p class="name">Egret</p>
      <span class={`pill ${tone}`} role="status">
        {text}
      </span>
      {stats && (
        <p class="about">
          {stats.version} <span>· up {duration(stats.uptime_s)} · times in {zone()}</span>
        </p>
      )}
      <Theme />
    </header>
  );
}

function Theme() {
  const [scheme, set] = useKept("colours", "system");
  useEffect(() => {
    document.documentElement.dataset["scheme"] = scheme;
    theme.value += 1;
  }, [scheme]);
  return (
    <label class="inline theme">
      <span class="hidden">Colours</span>
      <select value={scheme} onChange={(event) => set(event.currentTarget.value)}>
        <option value="system">System</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}

/**
 * `1` to `6` choose a view, as Ctrl+K does by name, unless something is being typed. A key means the same view whether or not traffic is
 * listed.
 */
function useShortcuts(): void {
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      const isTyping = (event.target as HTMLElement).closest("input, select, textarea, [contenteditable]") !== null;
      const view = VIEWS[Number(event.key) - 1];
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || view === undefined) return;
      location.hash = link(view[0]);
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, []);
}

/** Turns the links into plain text if a token is needed, because a link cannot carry it. */
function unlinkPaths(): void {
  if (token() === null && live.value.access === "open") return;
  for (const anchor of document.querySelectorAll("footer a:not([data-public])")) {
    const text = document.createElement("span");
    text.textContent = anchor.textContent;
    anchor.replaceWith(text);
  }
}

takeToken();
live.watch(unlinkPaths);
render(<App />, document.getElementById("app")!);
start();
