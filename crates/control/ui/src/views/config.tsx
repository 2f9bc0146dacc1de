// The config: its file in an editor with the mistakes in place, the difference, and earlier versions.
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, type Applied, call, type Checked, type ConfigFiles, type ConfigProblem, onlyReads, read, readText, type Version } from "../api";
import { useCell } from "../cell";
import { type DiffLine, diff } from "../diff";
import type { Handle, Mark } from "../editor/editor";
import type { Schema } from "../editor/schema";
import { bytes, day, plural } from "../format";
import { usePoll } from "../live";
import { Card, Confirm, Copy, Empty, Message, OnlyReads, Pill, Ticked, Trouble } from "../parts/basics";
import { Table } from "../parts/table";

const CHECK_MS = 500;

const ORIGINS: Record<string, string> = { start: "at the start", file: "changed on disk", api: "changed over the API", rollback: "rolled back" };

/** The text being edited. It outlives a change of the view. */
let draft: { base: string; text: string } | null = null;

export function Config() {
  const [files, setFiles] = useState<ConfigFiles | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const running = usePoll<{ control?: { config_changes?: string } }>("/api/v1/config", 10_000);
  const load = async () => {
    try {
      setFiles(await read<ConfigFiles>("/api/v1/config/files"));
      setError(null);
    } catch (error) {
      setFiles(null);
      setError(error as Error);
    }
  };
  useEffect(() => void load(), []);
  const file = files?.files[0];
  const isOff = running.data?.control?.config_changes === "off";
  return (
    <>
      <h1 class="hidden">Config</h1>
      {error && <ConfigTrouble error={error} again={load} />}
      {files && !file && (
        <Card title="Config file">
          <Empty>Egret runs without a config file. Start it with <code>egret run --config FILE</code> to edit the file here.</Empty>
        </Card>
      )}
      {files && file && <Editor key={files.etag} name={file.name} saved={file.text} etag={files.etag} isOff={isOff} reload={load} />}
      <Card title="Config in force" note="defaults included, secrets by name only">
        <details>
          <summary>Show</summary>
          <pre class="text" tabIndex={0} aria-label="The config in force">
            {running.data ? JSON.stringify(running.data, null, 2) : ""}
          </pre>
        </details>
      </Card>
    </>
  );
}

function ConfigTrouble({ error, again }: { error: Error; again: () => void }) {
  if (error instanceof ApiError && error.status === 409) {
    return (
      <Card title="Config file">
        <Empty>{error.message}</Empty>
      </Card>
    );
  }
  return <Trouble error={error} again={again} />;
}

interface EditorProps {
  name: string;
  saved: string;
  etag: string;
  isOff: boolean;
  reload: () => Promise<void>;
}

interface Outcome {
  tone: "good" | "bad";
  text: string;
  problems: ConfigProblem[];
}

/** What the last change did. It outlives the editor, which starts again with the new file. */
let lastOutcome: Outcome | null = null;

function Editor({ name, saved, etag, isOff, reload }: EditorProps) {
  const [text, setText] = useState(() => draft?.text ?? saved);
  const [checked, setChecked] = useState<Checked | null>(null);
  const [checkError, setCheckError] = useState("");
  const isReader = useCell(onlyReads);
  const isFixed = isOff || isReader;
  const [isReviewing, review] = useState(false);
  const [outcome, setOutcome] = useState(lastOutcome);
  const editor = useRef<Handle | null>(null);
  const isChanged = text !== saved;
  const tell = (outcome: Outcome | null) => setOutcome((lastOutcome = outcome));

  const edit = (next: string) => {
    setText(next);
    tell(null);
    draft = next === saved ? null : { base: draft?.base ?? saved, text: next };
  };
  useEffect(() => {
    // Those who only read may not check a text either.
    if (isReader) return;
    const controller = new AbortController();
    const check = async () => {
      try {
        const response = await call("/api/v1/config/validate", { method: "POST", body: text, signal: controller.signal });
        setChecked(await response.json());
        setCheckError("");
      } catch (error) {
        if (controller.signal.aborted) return;
        const problems = error instanceof ApiError ? error.problems : [];
        setChecked(problems.length > 0 ? { valid: false, problems, warnings: [] } : null);
        setCheckError((error as Error).message);
      }
    };
    const timer = setTimeout(check, CHECK_MS);
    return () => (clearTimeout(timer), controller.abort());
  }, [text, isReader]);
  useEffect(() => {
    const warn = (event: Event) => draft !== null && event.preventDefault();
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, []);

  const change = async (send: () => Promise<Response>) => {
    try {
      const applied: Applied = await (await send()).json();
      // What was written meanwhile is a draft of the new file.
      draft = draft === null || draft.text === text ? null : { base: text, text: draft.text };
      const sections = applied.applied.length > 0 ? `Applied: ${applied.applied.join(", ")}.` : "Nothing changed for the running gateway.";
      const restart = applied.restart.length > 0 ? ` Only a restart applies ${applied.restart.join(", ")}.` : "";
      lastOutcome = { tone: "good", text: `${sections}${restart}`, problems: applied.warnings };
      await reload();
      tell(lastOutcome);
    } catch (error) {
      const problems = error instanceof ApiError ? error.problems : [];
      tell({ tone: "bad", text: (error as Error).message, problems });
      // The file has changed: the draft stays, and is compared with the new text.
      if (error instanceof ApiError && error.status === 412) await reload();
    }
  };
  const apply = () =>
    change(() =>
      call(`/api/v1/config/files/${encodeURIComponent(name)}`, { method: "PUT", body: text, headers: { "if-match": etag, "content-type": "application/yaml" } }),
    );
  const rollBack = (version: number) =>
    change(() => call(`/api/v1/config/rollback?version=${version}`, { method: "POST", headers: { "if-match": etag } }));
  const discard = () => {
    edit(saved);
    editor.current?.setText(saved);
    review(false);
  };
  const go = (problem: ConfigProblem) => editor.current?.go(problem.line ?? 1, problem.column ?? 1);
  const marks = useMemo(() => marksOf(checked), [checked]);
  return (
    <>
      <Card
        title={name}
        note={isOff ? "read-only: control.config_changes is off" : isReader ? "read-only for you" : isChanged ? "edited, not applied" : "as on disk"}
        actions={!isReader && <Verdict checked={checked} error={checkError} />}
      >
        {draft !== null && draft.base !== saved && (
          <Message tone="warn">The file has changed on disk since you began to edit. Compare before you apply your text.</Message>
        )}
        <Area text={text} readOnly={isFixed} marks={marks} onEdit={edit} editor={editor} label={`Text of ${name}`} />
        <Problems problems={checked?.problems ?? []} kind="error" go={go} />
        <Problems problems={checked?.warnings ?? []} kind="warning" go={go} />
        {outcome && (
          <Message tone={outcome.tone}>
            {outcome.text}
            <Problems problems={outcome.problems} kind={outcome.tone === "bad" ? "error" : "warning"} go={go} />
          </Message>
        )}
        <OnlyReads />
        {!isFixed && (
          <div class="buttons">
            <button type="button" class="primary" disabled={!isChanged || checked?.valid !== true} onClick={apply}>
              Apply
            </button>
            <button type="button" disabled={!isChanged} aria-expanded={isReviewing} onClick={() => review(!isReviewing)}>
              {isReviewing ? "Hide changes" : "Show changes"}
            </button>
            <Confirm label="Discard" question="Discard your changes?" disabled={!isChanged} act={discard} />
          </div>
        )}
        {isReviewing && isChanged && <Diff lines={diff(saved, text)} label="Changes against the file" />}
      </Card>
      <Versions saved={saved} isOff={isFixed} rollBack={rollBack} />
    </>
  );
}

function Verdict({ checked, error }: { checked: Checked | null; error: string }) {
  if (error !== "" && !checked) return <Pill tone="bad">{error}</Pill>;
  if (!checked) return <Pill tone="calm">checking</Pill>;
  if (!checked.valid) return <Pill tone="bad">{plural(checked.problems.length, "error")}</Pill>;
  return checked.warnings.length > 0 ? <Pill tone="warn">{`valid, ${plural(checked.warnings.length, "warning")}`}</Pill> : <Pill tone="good">valid</Pill>;
}

/** The mistakes as marks in the editor. A problem may say itself that it is only a warning. */
function marksOf(checked: Checked | null): Mark[] {
  const marks = (problems: ConfigProblem[], usual: Mark["severity"]) =>
    problems.map(({ line, column, message, suggestion, severity }): Mark => {
      const hint = suggestion ? `: did you mean ${suggestion}?` : "";
      return { line, column, severity: severity ?? usual, message: `${message}${hint}` };
    });
  return [...marks(checked?.problems ?? [], "error"), ...marks(checked?.warnings ?? [], "warning")];
}

interface AreaProps {
  /** The text to begin with. From then on the editor has the text: setting it again would undo keys pressed meanwhile. */
  text: string;
  readOnly: boolean;
  marks: Mark[];
  onEdit: (text: string) => void;
  editor: { current: Handle | null };
  label: string;
}

/** The nonce of this page, which allows the editor to add its styles. */
const nonce = () => document.querySelector<HTMLElement>("link[nonce]")?.nonce ?? "";

/** Loads the editor and the schema that it completes by. Without the schema it only edits. */
async function loadEditor(): Promise<[typeof import("../editor/editor"), Schema | null]> {
  const file = "/editor.js";
  const schema = read<Schema>("/api/v1/schema").catch((error) => (console.debug(error), null));
  return [await import(file), await schema];
}

function Area({ text, readOnly, marks, onEdit, editor, label }: AreaProps) {
  const place = useRef<HTMLDivElement>(null);
  const id = useId();
  const [state, setState] = useState<"loading" | "ready" | "failed">("loading");
  const [key, setKey] = useState({ path: "", about: "" });
  const now = useRef({ text, onEdit });
  now.current = { text, onEdit };
  useEffect(() => {
    let isGone = false;
    loadEditor().then(
      ([{ create }, schema]) => {
        if (isGone) return;
        editor.current = create({
          parent: place.current!,
          text: now.current.text,
          readOnly,
          label,
          describedBy: id,
          nonce: nonce(),
          schema,
          onEdit: (next) => now.current.onEdit(next),
          onKey: (path, about) => setKey({ path, about }),
        });
        setState("ready");
      },
      (error) => (console.debug(error), setState("failed")),
    );
    return () => {
      isGone = true;
      editor.current?.destroy();
      editor.current = null;
    };
  }, [readOnly, label]);
  useEffect(() => editor.current?.setMarks(marks), [marks, state]);
  return (
    <>
      <div class="editor" ref={place} />
      {state === "loading" && <Empty>Loading the editor…</Empty>}
      {state === "failed" && (
        <>
          <Message tone="bad">The editor could not be loaded. Open the page again.</Message>
          <pre class="text" tabIndex={0} aria-label={label}>
            {text}
          </pre>
        </>
      )}
      <p class="note" id={id}>
        {readOnly ? "This text is read-only." : "Ctrl+Space completes, Tab indents. To leave the editor, press Escape, then Tab."}
      </p>
      {key.path !== "" && (
        <p class="note key-about">
          <code>{key.path}</code> {key.about}
        </p>
      )}
    </>
  );
}

function Problems({ problems, kind, go }: { problems: ConfigProblem[]; kind: "error" | "warning"; go: (problem: ConfigProblem) => void }) {
  if (problems.length === 0) return null;
  return (
    <ul class={`problems ${kind}`} aria-label={kind === "error" ? "Errors" : "Warnings"}>
      {problems.map((problem, index) => (
        <li key={index}>
          {problem.line === null ? (
            <span>{kind}</span>
          ) : (
            <button type="button" class="place" onClick={() => go(problem)}>
              line {problem.line}
            </button>
          )}
          <span>
            {problem.path && <code>{problem.path}</code>} <Ticked text={problem.message} />
            {problem.suggestion && <>: did you mean <code>{problem.suggestion}</code>?</>}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Diff({ lines, label }: { lines: DiffLine[]; label: string }) {
  if (lines.length === 0) return <p class="note">No line differs.</p>;
  const sign = { same: " ", added: "+", removed: "−", gap: "⋯" };
  return (
    <pre class="text diff" tabIndex={0} aria-label={label}>
      {lines.map((line, index) => (
        <span key={index} class={line.kind}>
          <i>{line.kind === "gap" ? "" : (line.now ?? line.old)}</i>
          {sign[line.kind]} {line.text}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

function Versions({ saved, isOff, rollBack }: { saved: string; isOff: boolean; rollBack: (version: number) => void }) {
  const { data } = usePoll<{ versions: Version[] }>("/api/v1/config/versions", 5000);
  const [shown, show] = useState<{ number: number; text: string } | null>(null);
  const [trouble, setTrouble] = useState("");
  const versions = data?.versions ?? [];
  if (versions.length === 0) return null;
  const open = async (number: number) => {
    try {
      show(shown?.number === number ? null : { number, text: await readText(`/api/v1/config/versions/${number}`) });
      setTrouble("");
    } catch (error) {
      setTrouble((error as Error).message);
    }
  };
  return (
    <Card title="Versions" note="the last ones that were in effect">
      {trouble && <Message tone="bad">{trouble}</Message>}
      <Table
        label="Versions"
        rows={versions}
        rowKey={({ number }) => String(number)}
        columns={[
          {
            key: "number",
            title: "Version",
            cell: ({ number, current }) => (
              <>
                {number} {current && <Pill tone="good">in effect</Pill>}
              </>
            ),
          },
          { key: "since", title: "Since", cell: ({ since_us }) => day(new Date(since_us / 1000)) },
          { key: "origin", title: "Reason", cell: ({ origin, user }) => `${ORIGINS[origin] ?? origin}${user ? ` by ${user}` : ""}` },
          { key: "bytes", title: "Size", numeric: true, cell: ({ bytes: size }) => bytes(size) },
          {
            key: "act",
            title: "Actions",
            class: "acts",
            cell: ({ number, current }) => (
              <>
                <button type="button" aria-expanded={shown?.number === number} onClick={() => void open(number)}>
                  Compare
                </button>
                {!current && !isOff && <Confirm label="Roll back" question={`Roll back to version ${number}?`} act={() => rollBack(number)} />}
              </>
            ),
          },
        ]}
      />
      {shown && (
        <>
          <h3 class="body-title">
            From the file to version {shown.number} <Copy label="Copy this version" text={() => shown.text} />
          </h3>
          <Diff lines={diff(saved, shown.text)} label={`From the file to version ${shown.number}`} />
        </>
      )}
    </Card>
  );
}
