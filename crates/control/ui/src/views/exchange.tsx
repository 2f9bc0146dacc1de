// One exchange: who answered, where the time went, what each remedy decided, and both messages.
import { useEffect, useState } from "preact/hooks";
import { ApiError, call, type ExchangeDetails, type HarEntry, onlyReads, type ProviderCall, read } from "../api";
import { useCell } from "../cell";
import { curl, pretty } from "../curl";
import { bytes, day, time, zone } from "../format";
import { usePoll } from "../live";
import { Card, Confirm, Copy, Empty, Message, OnlyReads, Pill, Ticked, type Tone, Trouble } from "../parts/basics";
import { Table } from "../parts/table";
import { link } from "../route";
import { BY, target, tone } from "./traffic";

const PHASES: [string, string][] = [
  ["earlier_us", "calls that failed"],
  ["blocked_us", "waiting in Egret"],
  ["dns_us", "DNS look-up"],
  ["connect_us", "connecting"],
  ["tls_us", "TLS handshake"],
  ["send_us", "sending the request"],
  ["wait_us", "waiting for the response"],
  ["receive_us", "receiving the response"],
];

const DECISIONS: Record<string, Tone> = { next: "good", wait: "warn", answer: "note", repeat: "warn", fail: "bad" };

/** An exchange of one of the lists of the API: `traffic` or `failures`. */
export function ExchangeView({ id, list }: { id: string; list: "traffic" | "failures" }) {
  const [state, set] = useState<{ details: ExchangeDetails | null; error: Error | null }>({ details: null, error: null });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    read<ExchangeDetails>(`/api/v1/${list}/${encodeURIComponent(id)}`, controller.signal)
      .then((details) => set({ details, error: null }))
      .catch((error) => controller.signal.aborted || set({ details: null, error }));
    return () => controller.abort();
  }, [id, list, attempt]);
  const { details, error } = state;
  const crumbs = (
    <p class="crumbs">
      <a href={link("traffic")}>Traffic</a> <span aria-hidden="true">›</span>
    </p>
  );
  if (error) {
    const gone = error instanceof ApiError && error.status === 404;
    return (
      <>
        {crumbs}
        {gone ? <Empty>This exchange is no longer on the list: newer ones took its place.</Empty> : <Trouble error={error} again={() => setAttempt(attempt + 1)} />}
      </>
    );
  }
  if (!details) return <Empty>Loading…</Empty>;
  const { har } = details;
  return (
    <>
      {crumbs}
      <h1 class="target">
        <code>
          {details.method} {target(details.url)}
        </code>
      </h1>
      <Card
        title={details.status === 0 ? "No response" : `${details.status} ${har.response.statusText}`}
        note={`${day(new Date(details.started))} ${zone()}`}
        actions={
          <>
            <Copy label="Copy as curl" text={() => curl(har.request)} />
            <button type="button" onClick={() => save(details)}>
              Save as HAR
            </button>
          </>
        }
      >
        <Summary details={details} />
        {list === "traffic" && <SendAgain details={details} />}
      </Card>
      <div class="pair">
        <Waterfall details={details} />
        <Decisions details={details} />
      </div>
      <div class="pair">
        <MessageCard title="Request" headers={har.request.headers} first={`${har.request.method} ${har.request.url}`} {...requestBody(har)} size={details.request_bytes} />
        <ResponseCard title="Response" response={har.response} size={details.response_bytes} />
      </div>
      <FailedCalls calls={details.calls} />
    </>
  );
}

/** What the provider received in each call that has failed, and what it sent. */
function FailedCalls({ calls }: { calls: ProviderCall[] }) {
  if (!calls.some(({ request }) => request)) return null;
  return (
    <Card title="Failed calls" note="as the provider received and answered them">
      {calls.map(
        ({ request, response, status, error, start_us, end_us }, index) =>
          request && (
            <details key={index}>
              <summary>
                Call {index + 1}: <b>{error ?? status}</b> after {time(Math.max(0, end_us - start_us))}
              </summary>
              <div class="pair">
                <MessageCard title={`Request of call ${index + 1}`} headers={request.headers} first={`${request.method} ${request.url}`} />
                {response && <ResponseCard title={`Response to call ${index + 1}`} response={response} size={response.content.size} />}
              </div>
            </details>
          ),
      )}
    </Card>
  );
}

function ResponseCard({ title, response, size }: { title: string; response: HarEntry["response"]; size: number }) {
  const { text, mimeType, encoding, comment } = response.content;
  const first = response.status === 0 ? "" : `${response.status} ${response.statusText}`;
  return <MessageCard title={title} headers={response.headers} first={first} text={text} type={mimeType} encoding={encoding} comment={comment} size={size} />;
}

function requestBody({ request: { postData } }: HarEntry) {
  return { text: postData?.text, type: postData?.mimeType ?? "", encoding: postData?.encoding, comment: postData?.comment };
}

function Summary({ details }: { details: ExchangeDetails }) {
  const facts: [string, string][] = [
    ["answered by", BY[details.answered_by]],
    ["provider", details.provider === "-" ? details.host : details.provider],
    ["time taken", time(details.duration_us)],
    ["of this, Egret", time(details.footprint_us)],
    ["calls to the provider", String(details.attempts)],
    ["flows", details.flows.join(", ") || "none"],
    ["account", details.account],
    ["consumer", details.consumer],
    ["client", details.client],
    ["request id", details.request_id],
  ];
  return (
    <>
      <p>
        {details.resent_of !== undefined && (
          <>
            <Pill tone="note">sent again</Pill>{" "}
            <a href={link("traffic", String(details.resent_of))}>the first exchange</a>{" "}
          </>
        )}
        {details.error && <Pill tone={tone(details)}>{details.error}</Pill>} {details.cut_short && <Pill tone="bad">cut short</Pill>} {details.client_closed_us !== undefined && <Pill tone="note">{`client closed at ${time(details.client_closed_us)}`}</Pill>} {details.intercepted && <Pill tone="note">inside an intercepted tunnel</Pill>}
      </p>
      <dl class="facts">
        {facts.filter(([, value]) => value !== "").map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

const SEND_MS = 35_000;

/** Has the gateway send the request again, from its own recording: no secret passes through the browser. */
function SendAgain({ details }: { details: ExchangeDetails }) {
  const config = usePoll<{ control?: { config_changes?: string } }>("/api/v1/config", 10_000);
  const [isSending, setSending] = useState(false);
  const [result, tell] = useState<{ error: string } | { status: number; id: number | null } | null>(null);
  const reads = useCell(onlyReads);
  const isOff = config.data?.control?.config_changes === "off";
  const isBarred = isOff || reads || isSending;
  const { possible, acts_again: actsAgain, reason } = details.resend;
  const because = isOff ? "control.config_changes is off, so the token only reads" : reason;
  const send = async () => {
    setSending(true);
    tell(null);
    try {
      const query = actsAgain ? "?confirmed=true" : "";
      const response = await call(`/api/v1/traffic/${details.id}/resend${query}`, { method: "POST", signal: AbortSignal.timeout(SEND_MS) });
      tell(await response.json());
    } catch (error) {
      tell({ error: (error as Error).message });
    }
    setSending(false);
  };
  return (
    <>
      <div class="buttons">
        {actsAgain ? (
          <Confirm
            label="Send again"
            question={`Send this ${details.method} again? The provider may act on it a second time.`}
            disabled={!possible || isBarred}
            act={() => void send()}
          />
        ) : (
          <button type="button" disabled={!possible || isBarred} onClick={() => void send()}>
            Send again
          </button>
        )}
        <p class="note aside">
          {because !== null
            ? `This request cannot be sent again: ${because}.`
            : isSending
              ? "Sending…"
              : "Egret sends the recorded request through its flows once more, with the client’s credentials."}
        </p>
      </div>
      <OnlyReads />
      {result && "error" in result && <Message tone="bad">{result.error}</Message>}
      {result && "status" in result && (
        <Message tone={result.status < 400 ? "good" : "warn"}>
          Sent again: the response is {result.status}.{" "}
          {result.id === null ? "The new exchange was not recorded." : <a href={link("traffic", String(result.id))}>Show the new exchange</a>}
        </Message>
      )}
    </>
  );
}

interface Bar {
  name: string;
  start: number;
  length: number;
  kind: string;
}

function Waterfall({ details }: { details: ExchangeDetails }) {
  const bars: Bar[] = [];
  let at = 0;
  // The phases end with the last call: those before it are part of `blocked_us`, and took the provider's time.
  const failed = details.calls.slice(0, -1).reduce((sum, call) => sum + Math.max(0, call.end_us - call.start_us), 0);
  const blocked = details.phases.blocked_us ?? 0;
  const earlier = Math.min(failed, blocked);
  const phases: Record<string, number | null> = { ...details.phases, earlier_us: earlier || null, blocked_us: blocked - earlier || null };
  for (const [key, name] of PHASES) {
    const length = phases[key] ?? -1;
    if (length < 0) continue;
    bars.push({ name, start: at, length, kind: key.replace("_us", "") });
    at += length;
  }
  const calls = details.calls.map((call, index): Bar => ({
    name: `call ${index + 1}: ${call.error ?? call.status}`,
    start: call.start_us,
    length: Math.max(0, call.end_us - call.start_us),
    kind: call.error !== null || call.status >= 500 || call.status === 429 ? "failed" : "call",
  }));
  const all = [...bars, ...(calls.length > 1 ? calls : [])];
  const whole = Math.max(details.duration_us, ...all.map(({ start, length }) => start + length), 1);
  return (
    <Card title="Where the time went" note={time(details.duration_us)}>
      {all.length === 0 && <Empty>No call to the provider was made.</Empty>}
      <ol class="waterfall">
        {all.map((bar) => (
          <li key={bar.name}>
            <span>{bar.name}</span>
            <span class="slot" aria-hidden="true">
              <i class={bar.kind} style={{ left: `${(100 * bar.start) / whole}%`, width: `${Math.max(0.4, (100 * bar.length) / whole)}%` }} />
            </span>
            <span class="number">{time(bar.length)}</span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Decisions({ details }: { details: ExchangeDetails }) {
  return (
    <Card title="What the flows decided" note="in order">
      {details.decisions.length === 0 && <Empty>No remedy took part.</Empty>}
      <ol class="decided">
        {details.decisions.map((decision, index) => (
          <li key={index}>
            <div class="remedy-head">
              <h3>
                {decision.flow} / {decision.remedy}
              </h3>
              <Pill tone={DECISIONS[decision.decision] ?? "calm"}>{decision.decision}</Pill>
              {decision.report && <Pill tone="note">reports only</Pill>}
            </div>
            <p>
              <Ticked text={decision.text} />
            </p>
            {decision.does && <p class="does">Configured: {decision.does}</p>}
          </li>
        ))}
      </ol>
    </Card>
  );
}

interface MessageProps {
  title: string;
  first: string;
  headers: { name: string; value: string }[];
  text?: string | undefined;
  type?: string;
  encoding?: string | undefined;
  comment?: string | undefined;
  /** Length of the body, if it is shown. */
  size?: number;
}

function MessageCard({ title, first, headers, text, type = "", encoding, comment, size }: MessageProps) {
  return (
    <Card title={title} note={<code class="target">{first}</code>}>
      <Table
        label={`Header fields of the ${title.toLowerCase()}`}
        rows={headers.map((field, index) => ({ ...field, index }))}
        rowKey={({ index }) => String(index)}
        columns={[
          { key: "name", title: "Field", cell: ({ name }) => <code>{name}</code> },
          { key: "value", title: "Value", class: "value-cell", cell: ({ value }) => <code>{value}</code> },
        ]}
      />
      {size !== undefined && (
        <h3 class="body-title">
          Body <small>{[bytes(size), type].filter((part) => part !== "").join(", ")}</small>
        </h3>
      )}
      {text && (
        <pre class="text" tabIndex={0} aria-label={`Body of the ${title.toLowerCase()}`}>
          {pretty(text, type, encoding)}
        </pre>
      )}
      {!text && size !== undefined && <p class="note">{size > 0 ? "The body was not kept." : "No body."}</p>}
      {comment && <p class="note">{comment}</p>}
    </Card>
  );
}

function save(details: ExchangeDetails): void {
  const log = { version: "1.2", creator: { name: "Egret", version: "" }, entries: [details.har] };
  const url = URL.createObjectURL(new Blob([JSON.stringify({ log }, null, 2)], { type: "application/json" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = `exchange-${details.id}.har`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
