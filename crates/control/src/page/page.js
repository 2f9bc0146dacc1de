// The control page: fetches the statistics every second and shows how they change. No libraries, no external files.
//
// The gateway counts from its start. Current rates are differences between two moments; the page keeps one minute of moments.

const PERIOD_MS = 1000;
const KEPT_MS = 61_000; // one minute of rates
const WINDOW_MS = 30_000; // for shares and quantiles
const RATE_MS = 3_000; // for the rates shown as numbers
const TOKEN_KEY = "egret-control-token";

// Limits of the logarithmic bars in microseconds: the usual ranges of providers and of a gateway.
const SCALES = { latency: [1e3, 1e7], footprint: [1e1, 1e4] };

const byId = (id) => document.getElementById(id);
const moments = []; // { at, stats, accounts }, oldest first
const rows = new Map(); // by provider

// --- Formatting ---

const digits = (value) => (value >= 100 ? 0 : value >= 10 ? 1 : 2);
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: digits(value) });
const whole = (value) => value.toLocaleString("en");

/** Formats a value in the largest unit of `steps` that it reaches. */
function scaled(value, steps) {
  const [unit, size] = steps.findLast(([, size]) => value >= size) ?? steps[0];
  return [number(value / size), unit];
}

const bytes = (value) => scaled(value, [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30]]);
const time = (us) => (us === null ? "–" : scaled(us, [["µs", 1], ["ms", 1e3], ["s", 1e6]]).join(" "));

/** Formats a share with one decimal; a share close to 0 or 1 is not rounded to it. */
function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  if (share < 1 && share > 0.999) return "> 99.9 %";
  return `${(100 * share).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}

const percentParts = (share) => [percent(share).slice(0, -2), "%"];

function duration(seconds) {
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${seconds % 60} s` : `${seconds} s`;
}

// --- Differences between moments ---

const sum = (values) => values.reduce((total, value) => total + value, 0);
const exchanges = (provider) => sum(provider.exchanges.map((each) => each.count));
const label = (provider) => provider.host ?? provider.name;
const find = (stats, name) => stats?.providers.find((provider) => label(provider) === name);

/** Returns the oldest moment of the last `span` ms; in a tab throttled by the browser, the last but one. */
function past(span) {
  const since = moments.at(-1).at - span - PERIOD_MS / 2;
  const index = moments.findIndex(({ at }) => at >= since);
  return moments[Math.max(0, Math.min(index, moments.length - 2))];
}

/** Returns the recent growth per second of `read` of the stats. */
function rate(read) {
  const [then, now] = [past(RATE_MS), moments.at(-1)];
  return now.at > then.at ? Math.max(0, (1000 * (read(now.stats) - read(then.stats))) / (now.at - then.at)) : 0;
}

/** Returns the growth per second of `read` at each kept moment, averaged over three moments so single calls do not flicker. */
function rates(read) {
  return moments.slice(1).map(({ at, stats }, index) => {
    const then = moments[Math.max(0, index - 2)];
    return Math.max(0, (1000 * (read(stats) - read(then.stats))) / (at - then.at));
  });
}

/** Returns the counts of the status classes over the window. */
function statuses(provider, before) {
  const count = (of, status) => sum((of?.exchanges ?? []).filter((each) => each.status === status).map((each) => each.count));
  return ["2xx", "3xx", "4xx", "5xx", "none"].map((status) => [status, count(provider, status) - count(before, status)]);
}

/** Returns the growth of the buckets over the window, or the counts since start if nothing was added. */
function recent(histogram, before) {
  const grown = histogram.buckets.map((count, index) => count - (before?.buckets[index] ?? 0));
  return sum(grown) > 0 ? grown : histogram.buckets;
}

/** Returns the quantile `share` in microseconds, assuming that counts are evenly spread within a bucket. */
function quantile(buckets, share, bounds) {
  const rank = share * sum(buckets);
  if (rank === 0) return null;
  let seen = 0;
  for (const [index, count] of buckets.entries()) {
    if (seen + count >= rank && count > 0) {
      const low = index ? bounds[index - 1] : 0;
      return low + ((bounds[index] ?? low) - low) * ((rank - seen) / count);
    }
    seen += count;
  }
  return null;
}

// --- Drawing ---

function tile(title, [value, unit = ""], note) {
  const element = document.createElement("div");
  element.className = "tile";
  const heading = document.createElement("h3");
  heading.textContent = title;
  const figure = document.createElement("b");
  figure.textContent = value;
  const span = document.createElement("span");
  span.textContent = unit;
  figure.append(span);
  const small = document.createElement("small");
  small.textContent = note;
  element.append(heading, figure, small);
  return element;
}

function drawTiles(stats) {
  const total = (of) => sum(of.providers.map(exchanges));
  const all = (field) => sum(stats.providers.map((provider) => provider[field]));
  const { clients, dns } = stats;
  const reused = all("pool_hits") / Math.max(1, all("pool_hits") + all("connects"));
  const [sent, unit] = bytes(rate((of) => of.clients.sent_bytes));
  const denied = sum(stats.denials.map((each) => each.count));
  byId("tiles").replaceChildren(
    tile("Requests", [number(rate(total)), "/s"], `${whole(total(stats))} since start`),
    tile("Clients", [whole(clients.open)], `${whole(clients.idle)} idle, ${whole(clients.tunnels)} tunnels`),
    tile("To clients", [sent, `${unit}/s`], `${bytes(clients.sent_bytes).join(" ")} since start`),
    tile("Reused connections", all("connects") ? percentParts(reused) : ["–"], `${whole(all("connects"))} opened`),
    tile("DNS look-ups cached", dns.lookups ? percentParts(dns.hits / dns.lookups) : ["–"], `${whole(dns.failures)} failed`),
    tile("Denied", [whole(denied)], `${whole(stats.reloads)} reloads, ${whole(stats.reloads_refused)} refused`),
  );
}

function spark(svg, values) {
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, index) => `${(60 - (values.length - 1 - index)).toFixed(2)} ${(19.5 - (18.5 * value) / top).toFixed(2)}`);
  const line = points.length > 1 ? `M${points.join("L")}` : "";
  svg.querySelector(".line").setAttribute("d", line);
  svg.querySelector(".area").setAttribute("d", line && `${line}L60 20L${60 - values.length + 1} 20Z`);
}

function drawSpan(row, kind, provider, before, bounds) {
  const buckets = recent(provider[kind], before?.[kind]);
  const [low, high] = SCALES[kind];
  const width = (us) => (us === null ? 0 : Math.min(1, Math.max(0.02, Math.log(us / low) / Math.log(high / low))));
  const text = row.querySelector(`.quantiles.${kind}`);
  const shown = [["p50", 0.5], ["p99", 0.99]].map(([name, share]) => {
    const us = quantile(buckets, share, bounds);
    row.querySelector(`.span.${kind} .${name}`).style.width = `${100 * width(us)}%`;
    return time(us);
  });
  const [strong, rest] = [document.createElement("b"), document.createElement("span")];
  [strong.textContent, rest.textContent] = shown;
  text.replaceChildren(strong, rest);
}

function drawAnswers(row, provider, before) {
  const counts = statuses(provider, before);
  const total = sum(counts.map(([, count]) => count));
  const bars = row.querySelectorAll(".stack i");
  counts.forEach(([, count], index) => {
    bars[index].hidden = count === 0;
    bars[index].style.flexGrow = count;
  });
  const shares = counts.filter(([, count]) => count > 0).map(([status, count]) => `${status} ${percent(count / total)}`);
  const bad = shares.filter((share) => !share.startsWith("2") && !share.startsWith("3"));
  row.querySelector(".shares").textContent = total ? bad.join(" · ") || "no errors" : "no responses";
  row.querySelector(".shares").title = shares.join(", ");
}

function drawProvider(provider, bounds) {
  const name = label(provider);
  if (!rows.has(name)) {
    const row = byId("row").content.cloneNode(true).firstElementChild;
    const title = row.querySelector("th");
    title.textContent = name === "-" ? "other hosts" : name;
    title.classList.toggle("others", provider.name === "-");
    rows.set(name, row);
  }
  const row = rows.get(name);
  const count = (stats) => { const of = find(stats, name); return of ? exchanges(of) : 0; };
  const before = find(past(WINDOW_MS).stats, name);
  row.classList.toggle("quiet", count(moments.at(-1).stats) === count(past(WINDOW_MS).stats));
  row.querySelector(".rate b").textContent = number(rate(count));
  spark(row.querySelector(".spark"), rates(count));
  drawAnswers(row, provider, before);
  drawSpan(row, "latency", provider, before, bounds);
  drawSpan(row, "footprint", provider, before, bounds);
  row.querySelector(".open").textContent = whole(provider.connections_open);
  row.querySelector(".idle").textContent = `${whole(provider.connections_idle)} idle`;
  return row;
}

function drawProviders(stats) {
  const active = stats.providers.filter((provider) => provider.name !== "-" || exchanges(provider) > 0);
  const drawn = active.map((provider) => drawProvider(provider, stats.bounds_us));
  const table = byId("providers");
  if (drawn.length !== table.children.length || drawn.some((row, index) => table.children[index] !== row)) {
    table.replaceChildren(...drawn);
  }
  byId("empty").hidden = active.some((provider) => exchanges(provider) > 0);
}

function drawCounts(id, counts) {
  const positive = counts.filter((each) => each.count > 0).sort((a, b) => b.count - a.count);
  const section = byId(id);
  section.hidden = positive.length === 0;
  section.querySelector("ul").replaceChildren(...positive.map(({ name, count }) => {
    const [item, code, figure] = ["li", "code", "b"].map((tag) => document.createElement(tag));
    [code.textContent, figure.textContent] = [name, whole(count)];
    item.append(code, figure);
    return item;
  }));
}

function cell(text, className = "") {
  const element = document.createElement("td");
  element.className = className;
  element.append(text);
  return element;
}

/** Returns the state of an account as a pill; for a cooling account also the remaining time and the reason. */
function accountState({ state, until_us: until, reason }) {
  const pill = document.createElement("span");
  const isUsable = state === "usable";
  pill.className = `pill ${isUsable ? "ready" : "waiting"}`;
  const left = Math.max(0, Math.ceil(until / 1e6 - Date.now() / 1000));
  pill.textContent = isUsable ? state : `${state} ${duration(left)} (${reason})`;
  return pill;
}

function drawAccount(account) {
  const row = document.createElement("tr");
  const name = document.createElement("th");
  name.scope = "row";
  const kind = document.createElement("small");
  kind.textContent = account.kind;
  name.append(account.name, " ", kind);
  const refused = Object.entries(account.refused).filter(([, count]) => count > 0);
  row.append(
    name,
    cell(account.providers.join(", ")),
    cell(accountState(account)),
    cell(whole(account.in_flight), "number"),
    cell(whole(account.calls), "number"),
    cell(refused.map(([status, count]) => `${status}: ${whole(count)}`).join(" · ") || "–"),
    cell(account.remaining === null ? "–" : whole(account.remaining), "number"),
  );
  return row;
}

function drawAccounts({ accounts, accounts_count: count }) {
  const section = byId("accounts");
  section.hidden = count === 0;
  section.querySelector(".title p").textContent = count > accounts.length ? `the first ${whole(accounts.length)} of ${whole(count)}` : "";
  section.querySelector("tbody").replaceChildren(...accounts.map(drawAccount));
}

function draw() {
  const { stats, accounts } = moments.at(-1);
  show(stats.ready ? "ready" : "waiting", stats.ready ? "ready" : "starting or draining");
  byId("about").textContent = `${stats.version} · up ${duration(stats.uptime_s)}`;
  drawTiles(stats);
  drawProviders(stats);
  drawAccounts(accounts);
  drawCounts("generated", stats.generated);
  drawCounts("denials", stats.denials);
}

function show(kind, text) {
  byId("state").className = `pill ${kind}`;
  byId("state").textContent = text;
}

// --- Fetching ---

/** Turns the links into plain text if a token is needed, because a link cannot carry it. */
function unlinkPaths() {
  for (const link of document.querySelectorAll("footer a:not([data-public])")) {
    const text = document.createElement("span");
    text.textContent = link.textContent;
    link.replaceWith(text);
  }
}

/** Shows the token dialog; polling resumes once it is closed. */
function askForToken() {
  const wrong = sessionStorage.getItem(TOKEN_KEY) !== null;
  unlinkPaths();
  sessionStorage.removeItem(TOKEN_KEY);
  show("waiting", "token needed");
  if (wrong) {
    byId("ask-why").textContent = "That token was refused.";
    byId("ask-why").className = "wrong";
  }
  byId("token").value = "";
  byId("ask").showModal();
}

async function fetchFigures(path) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  if (token !== null) unlinkPaths();
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  return fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(4000) });
}

/** Stores the moment; starts over if the gateway was restarted. */
function keep(stats, accounts) {
  if (stats.uptime_s < moments.at(-1)?.stats.uptime_s) moments.length = 0;
  const at = performance.now();
  moments.push({ at, stats, accounts });
  while (moments.length > 2 && moments[0].at < at - KEPT_MS) moments.shift();
}

async function poll() {
  try {
    const responses = await Promise.all(["/api/v1/stats", "/api/v1/accounts"].map(fetchFigures));
    if (responses.some(({ status }) => status === 401)) return askForToken();
    const failed = responses.find(({ ok }) => !ok);
    if (failed) throw new Error(`status ${failed.status}`);
    keep(...(await Promise.all(responses.map((response) => response.json()))));
    draw();
  } catch (error) {
    show("away", "not reachable");
    console.debug(error);
  }
  setTimeout(poll, PERIOD_MS);
}

byId("ask").addEventListener("cancel", (event) => event.preventDefault());
byId("ask").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN_KEY, byId("token").value.trim());
  byId("ask").close();
});
byId("ask").addEventListener("close", () => poll());

/** Takes the token from the address that Egret prints at its start, and removes it from the address bar and the history. */
function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return;
  sessionStorage.setItem(TOKEN_KEY, token);
  history.replaceState(null, "", location.pathname);
}

window.addEventListener("hashchange", takeToken);
takeToken();
poll();
