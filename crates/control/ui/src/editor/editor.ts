// The editor of the config: CodeMirror with YAML, completion and descriptions from the config's schema, and
// mistakes in place. It is a file of its own, which the page loads when the config is shown.
import { autocompletion, type Completion, type CompletionContext, type CompletionResult, completionKeymap, closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, type Text } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { placeAt, type Step } from "./place";
import { ConfigSchema, type Found, type Schema } from "./schema";

export interface Mark {
  line: number | null;
  column: number | null;
  severity: "error" | "warning";
  message: string;
}

export interface Options {
  parent: HTMLElement;
  text: string;
  readOnly: boolean;
  label: string;
  /** Id of the element that explains the keys. */
  describedBy: string;
  /** Nonce of the page's response, for the styles. */
  nonce: string;
  schema: Schema | null;
  onEdit: (text: string) => void;
  /** Tells about the key at the cursor. */
  onKey: (path: string, about: string) => void;
}

export interface Handle {
  setText: (text: string) => void;
  setMarks: (marks: Mark[]) => void;
  go: (line: number, column: number) => void;
  destroy: () => void;
}

/** Keys whose values are names from another part of the config. */
const NAMED: Record<string, string> = { quota: "quotas", provider: "providers", export: "exporters", use: "accounts" };

const THEME = EditorView.theme({
  "&": { backgroundColor: "var(--page)", color: "var(--ink)", fontSize: ".85rem", border: "1px solid var(--edge-strong)", borderRadius: "8px", maxHeight: "46rem" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.35rem", minHeight: "14rem", borderRadius: "8px" },
  ".cm-content, .cm-gutters": { minHeight: "14rem" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--track)", color: "var(--soft-strong)", border: "0" },
  ".cm-activeLine": { backgroundColor: "var(--active)" },
  ".cm-activeLineGutter": { backgroundColor: "var(--active)", color: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--selection)" },
  ".cm-selectionMatch": { backgroundColor: "var(--selection)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { backgroundColor: "var(--selection)", color: "inherit" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--edge-strong)", borderRadius: "8px", maxWidth: "min(34rem, 90vw)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: ".85rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "inherit", opacity: ".8" },
  ".cm-tooltip.cm-completionInfo": { padding: ".5rem .7rem", whiteSpace: "pre-line" },
  ".cm-about": { padding: ".5rem .7rem", whiteSpace: "pre-line" },
  ".cm-panels": { backgroundColor: "var(--card)", color: "var(--ink)" },
  ".cm-panel.cm-search input, .cm-panel.cm-search button": { backgroundImage: "none", backgroundColor: "var(--card)" },
  ".cm-diagnostic": { padding: ".3rem .6rem" },
});

const COLORS = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "var(--accent-ink)" },
  { tag: [tags.string, tags.special(tags.string), tags.content], color: "var(--ink)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--soft-strong)", fontStyle: "italic" },
  { tag: [tags.keyword, tags.typeName, tags.labelName, tags.meta], color: "var(--note-ink)" },
]);

/** Makes an editor in `parent`. */
export function create(options: Options): Handle {
  const schema = options.schema === null ? null : new ConfigSchema(options.schema);
  let isSetting = false;
  const view = new EditorView({
    parent: options.parent,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        EditorView.cspNonce.of(options.nonce),
        THEME,
        syntaxHighlighting(COLORS),
        yaml(),
        indentUnit.of("  "),
        EditorState.tabSize.of(2),
        EditorState.readOnly.of(options.readOnly),
        lineNumbers(),
        foldGutter(),
        lintGutter(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        drawSelection(),
        bracketMatching(),
        closeBrackets(),
        history(),
        search({ top: true }),
        highlightSelectionMatches(),
        schema === null ? [] : [autocompletion({ override: [(context) => complete(context, schema)], icons: false }), hover(schema)],
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...lintKeymap, ...defaultKeymap, indentWithTab]),
        EditorView.contentAttributes.of({
          "aria-label": options.label,
          "aria-describedby": options.describedBy,
          "aria-readonly": String(options.readOnly),
          spellcheck: "false",
          autocapitalize: "off",
          autocorrect: "off",
        }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !isSetting) options.onEdit(update.state.doc.toString());
          if (schema !== null && (update.docChanged || update.selectionSet)) tellKey(update.state, schema, options.onKey);
        }),
      ],
    }),
  });
  // With the keyboard, too, long lines can be scrolled.
  view.scrollDOM.tabIndex = 0;
  return {
    setText: (text) => {
      if (view.state.doc.toString() === text) return;
      isSetting = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
      isSetting = false;
    },
    setMarks: (marks) => view.dispatch(setDiagnostics(view.state, marks.map((mark) => diagnostic(view.state.doc, mark)))),
    go: (line, column) => {
      view.focus();
      view.dispatch({ selection: { anchor: position(view.state.doc, line, column) }, scrollIntoView: true });
    },
    destroy: () => view.destroy(),
  };
}

/** A position from a line and a column, which counts characters. */
function position(doc: Text, line: number, column: number): number {
  const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
  const before = [...found.text].slice(0, Math.max(column, 1) - 1).join("");
  return found.from + before.length;
}

function diagnostic(doc: Text, { line, column, severity, message }: Mark): Diagnostic {
  const from = position(doc, line ?? 1, column ?? 1);
  const { to } = doc.lineAt(from);
  const word = /^[^\s,\]}]+/.exec(doc.sliceString(from, to))?.[0].length ?? 0;
  return { from, to: Math.min(to, from + Math.max(word, 1)), severity, message };
}

function complete(context: CompletionContext, schema: ConfigSchema): CompletionResult | null {
  const text = context.state.doc.toString();
  const { path, kind, from } = placeAt(text, context.pos);
  if (kind === "none" || (context.pos === from && !context.explicit)) return null;
  const options: Completion[] = [];
  if (kind !== "value") options.push(...schema.keys(path).map(keyCompletion));
  if (kind !== "key") options.push(...schema.values(path).map((found) => ({ label: found.name, info: found.info, type: "enum" })), ...names(text, path));
  return options.length === 0 ? null : { from, options: options.map(withoutEmpty), validFor: /^[\w-]*$/ };
}

/** A key, in the order of the schema, which begins with the everyday ones. A boost is at most 99. */
const keyCompletion = ({ name, detail, info }: Found, number: number): Completion => ({
  label: name,
  apply: `${name}: `,
  detail,
  info,
  type: "property",
  boost: 99 - Math.min(number, 99),
});

/** An empty description would still open a box. */
function withoutEmpty({ info, detail, ...rest }: Completion): Completion {
  return { ...rest, ...(info ? { info } : {}), ...(detail ? { detail } : {}) };
}

/** The names that another part of the config defines. */
function names(text: string, path: Step[]): Completion[] {
  const key = path.findLast((step) => typeof step === "string");
  const section = NAMED[key as string];
  if (section === undefined) return [];
  const lines = text.split("\n");
  const start = lines.findIndex((line) => line.startsWith(`${section}:`));
  if (start < 0) return [];
  const found = new Set<string>();
  // In flow style the names stand on the line of the section.
  for (const [, name] of lines[start]!.matchAll(/(?:^\w+:\s*\{|\},)\s*([\w-]+):/g)) found.add(name!);
  let column: number | null = null;
  for (const line of lines.slice(start + 1)) {
    const entry = /^(\s*)(?:([\w-]+):)?/.exec(line)!;
    if (line.trim() === "" || line.trimStart().startsWith("#")) continue;
    if (entry[1] === "") break;
    column ??= entry[1]!.length;
    if (entry[1]!.length === column && entry[2]) found.add(entry[2]);
  }
  return [...found].map((label) => ({ label, type: "constant", detail: `of ${section}` }));
}

/** The key around a position, with the path that leads to it. */
function keyAt(text: string, at: number): { path: Step[]; from: number; to: number } | null {
  const before = /[\w-]*$/.exec(text.slice(Math.max(0, at - 80), at))![0].length;
  const after = /^[\w-]*/.exec(text.slice(at, at + 80))![0].length;
  const [from, to] = [at - before, at + after];
  if (from === to || !/^["']?\s*:(\s|$)/.test(text.slice(to, to + 8))) return null;
  const { path, kind } = placeAt(text, from);
  return kind === "key" || kind === "either" ? { path: [...path, text.slice(from, to)], from, to } : null;
}

function hover(schema: ConfigSchema) {
  return hoverTooltip((view, at) => {
    const key = keyAt(view.state.doc.toString(), at);
    const about = key === null ? "" : schema.describe(key.path);
    if (key === null || about === "") return null;
    return {
      pos: key.from,
      end: key.to,
      create: () => {
        const dom = document.createElement("div");
        dom.className = "cm-about";
        dom.textContent = about;
        return { dom };
      },
    };
  });
}

/** Tells about the key of the cursor's line, for those who use no pointer. */
function tellKey(state: EditorState, schema: ConfigSchema, tell: Options["onKey"]): void {
  const { head } = state.selection.main;
  const text = state.doc.toString();
  const key = keyAt(text, head);
  const path = key?.path ?? placeAt(text, head).path;
  const named = path.slice(0, path.findLastIndex((step) => typeof step === "string") + 1);
  tell(named.filter((step) => typeof step === "string").join(" › "), schema.describe(named));
}
