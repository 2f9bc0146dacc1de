// What is wrong now, on top of every view, and what happened.
import { useState } from "preact/hooks";
import type { Finding, GatewayEvent } from "../api";
import { useCell } from "../cell";
import { day, duration, plural, zone } from "../format";
import { findings } from "../live";
import { link } from "../route";
import { Card, Empty, Pill, Ticked, type Tone } from "./basics";

/** Number of findings that are shown before somebody asks for the others. */
const SHOWN = 3;
const EVENTS_SHOWN = 20;

const TONES: Record<Finding["severity"], Tone> = { error: "bad", warning: "warn" };

/** The tone and the text of the pill in the header, or null if nothing is wrong. */
export function worst(list: Finding[]): [Tone, string] | null {
  const errors = list.filter(({ severity }) => severity === "error").length;
  if (errors > 0) return ["bad", plural(errors, "error")];
  return list.length > 0 ? ["warn", plural(list.length, "warning")] : null;
}

/** The findings, the worst first. Nothing if there are none. */
export function Findings() {
  const list = useCell(findings)?.findings ?? [];
  const [all, show] = useState(false);
  const shown = all ? list : list.slice(0, SHOWN);
  const hidden = list.length - shown.length;
  return (
    <section class="findings" aria-label="What is wrong now" role="status">
      {shown.map((finding) => (
        <Row key={`${finding.kind} ${finding.subject}`} finding={finding} />
      ))}
      {hidden > 0 && (
        <button type="button" onClick={() => show(true)}>
          Show {plural(hidden, "more finding")}
        </button>
      )}
    </section>
  );
}

function Row({ finding }: { finding: Finding }) {
  const { kind, severity, subject, since_us, summary, evidence, advice } = finding;
  const since = new Date(since_us / 1000);
  const place = target(kind, subject);
  return (
    <details class={`finding ${TONES[severity]}`}>
      <summary>
        <Pill tone={TONES[severity]}>{severity}</Pill> <b>{summary}</b>{" "}
        <small>
          since <time dateTime={since.toISOString()}>{day(since)}</time>, for {duration((Date.now() - since.getTime()) / 1000)}
        </small>
      </summary>
      <p>
        <Ticked text={evidence} />
      </p>
      <p>
        → <Ticked text={advice} /> {place && <a href={place}>Show {subject}</a>}
      </p>
    </details>
  );
}

/** The view that shows more about a finding. */
function target(kind: string, subject: string): string | null {
  // The subject is the provider and, after a colon, the URL of its endpoint.
  if (kind === "endpoint-excluded") return link("provider", subject.split(": ")[0]);
  if (kind.startsWith("provider-") || kind === "credentials-rejected") return link("provider", subject);
  if (["circuit-open", "queue-filling", "quota-near-end", "account-unusable", "limits-differ"].includes(kind)) return link("flows");
  if (["exporter-failing", "diagnoses-behind"].includes(kind)) return link("records");
  return ["config-refused", "secret-stale", "issuer-failing"].includes(kind) ? link("config") : null;
}

const WORDS: Record<GatewayEvent["what"], [Tone, string]> = {
  started: ["calm", "started"],
  "config-applied": ["note", "config"],
  began: ["bad", "began"],
  ended: ["good", "ended"],
};

/** The last events, the newest first. */
export function Events() {
  const events = useCell(findings)?.events ?? [];
  return (
    <Card title="What happened" note={`the newest first, in ${zone()}; drawn into the charts`}>
      {events.length === 0 && <Empty>Nothing yet.</Empty>}
      <ul class="events">
        {events.slice(0, EVENTS_SHOWN).map(({ at_us, what, text }, index) => {
          const at = new Date(at_us / 1000);
          const [tone, word] = WORDS[what];
          return (
            <li key={index}>
              <time dateTime={at.toISOString()}>{day(at)}</time> <Pill tone={tone}>{word}</Pill> <span>{text}</span>
            </li>
          );
        })}
      </ul>
    </Card>
  );
}
