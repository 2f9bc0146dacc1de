// Small parts that all views share.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ApiError, keepToken, onlyReads, token } from "../api";
import { useCell } from "../cell";
import { retry } from "../live";
import { Spark } from "./charts";

export type Tone = "good" | "warn" | "bad" | "calm" | "note";

export function Pill({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`pill ${tone}`}>{children}</span>;
}

interface CardProps {
  title: string;
  note?: ComponentChildren;
  actions?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}

export function Card({ title, note, actions, class: name = "", children }: CardProps) {
  const id = useId();
  return (
    <section class={`card ${name}`} aria-labelledby={id}>
      <div class="title">
        <h2 id={id}>{title}</h2>
        {note && <p>{note}</p>}
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </section>
  );
}

interface TileProps {
  title: string;
  value: string;
  unit: string;
  note: string;
  /** The figure's last minutes, the oldest first. */
  trend: number[];
  tone?: Tone;
}

export function Tile({ title, value, unit, note, trend, tone = "good" }: TileProps) {
  return (
    <div class={`tile ${tone}`}>
      <p class="tile-title">{title}</p>
      <p class="figure">
        {value}
        {unit && <span>{unit}</span>}
      </p>
      <p class="note">{note}</p>
      <Spark values={trend} />
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export interface GaugeProps {
  label: string;
  value: number;
  max: number;
  text: string;
  tone?: Tone;
}

/** A bar from 0 to `max`. */
export function Gauge({ label, value, max, text, tone }: GaugeProps) {
  const share = max > 0 ? Math.min(1, value / max) : 0;
  return (
    <div class="gauge">
      <div class="gauge-text">
        <span>{label}</span>
        <span>{text}</span>
      </div>
      <div
        class={`track ${tone ?? (share >= 1 ? "bad" : share >= 0.8 ? "warn" : "calm")}`}
        role="meter"
        aria-label={`${label}: ${text}`}
        aria-valuemin={0}
        aria-valuemax={max}
        aria-valuenow={Math.min(value, max)}
      >
        <i style={{ width: `${100 * share}%` }} />
      </div>
    </div>
  );
}

/** Text whose parts in backticks are code. */
export function Ticked({ text }: { text: string }) {
  return <>{text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}

/** A message for people that appears after an action. */
export function Message({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <div class={`message ${tone}`} role={tone === "bad" ? "alert" : "status"}>
      {children}
    </div>
  );
}

/** Asks for the token. `everything` is false if only this view needs it. */
export function TokenForm({ refused, everything, onToken }: { refused: boolean; everything: boolean; onToken: () => void }) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const submit = (event: Event) => {
    event.preventDefault();
    const given = input.current?.value.trim() ?? "";
    if (given === "") return;
    keepToken(given);
    onToken();
  };
  return (
    <form class="card ask" onSubmit={submit}>
      <h2>{everything ? "This control port requires a token" : "This view requires the control token"}</h2>
      {refused && (
        <p class="wrong" role="alert">
          That token was refused.
        </p>
      )}
      <p>
        It is the secret that the config names as <code>control.token</code>, or as <code>control.read_token</code>, which only reads.
        Without the former, Egret creates a token at each start: on a terminal, it prints this page’s address with the token;
        otherwise the token is in the file <code>control-token</code> in <code>data_dir</code> (<code>egret-data</code> unless
        configured).
      </p>
      <label for={id}>Token</label>
      <input id={id} ref={input} type="password" autocomplete="off" spellcheck={false} required />
      <button class="primary">Continue</button>
      <p class="note">The token is kept until this tab is closed.</p>
    </form>
  );
}

/** Shows why a view has no data: asks for the token if that helps. */
export function Trouble({ error, again }: { error: Error; again: () => void }) {
  if (error instanceof ApiError && error.status === 401) {
    const go = () => (retry(), again());
    return <TokenForm refused={token() !== null} everything={false} onToken={go} />;
  }
  return <Message tone="bad">{error.message}</Message>;
}

/** Says why the buttons beside it are disabled, if the caller only reads. */
export function OnlyReads() {
  if (!useCell(onlyReads)) return null;
  return (
    <p class="note">
      You may only read: a change needs <code>control.token</code>, or a user in <code>control.trusted_proxy.writers</code>.
    </p>
  );
}

/** A button that asks again before it acts. */
export function Confirm({ label, question, act, disabled }: { label: string; question: string; act: () => void; disabled?: boolean }) {
  const [asked, ask] = useState(false);
  const yes = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (asked) yes.current?.focus();
  }, [asked]);
  if (!asked) {
    return (
      <button type="button" disabled={disabled ?? false} onClick={() => ask(true)}>
        {label}
      </button>
    );
  }
  return (
    <span class="confirm" role="group" aria-label={question}>
      <span>{question}</span>
      <button type="button" class="danger" ref={yes} onClick={() => (ask(false), act())}>
        Yes
      </button>
      <button type="button" onClick={() => ask(false)}>
        No
      </button>
    </span>
  );
}

/** A button that copies a text, and says so. */
export function Copy({ label, text }: { label: string; text: () => string }) {
  const [told, tell] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      tell("Copied");
    } catch {
      tell("The browser refused to copy");
    }
    setTimeout(() => tell(""), 2000);
  };
  return (
    <>
      <button type="button" onClick={copy}>
        {label}
      </button>
      <span class="told" role="status">
        {told}
      </span>
    </>
  );
}
