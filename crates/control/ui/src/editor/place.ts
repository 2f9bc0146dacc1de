// The place of a position in a YAML text: the keys that lead there. The text may be unfinished, so this reads
// lines and brackets instead of a syntax tree.

export type Step = string | number;

export interface Place {
  /** The keys and list items around the position, the outermost first. */
  path: Step[];
  /** Whether a key may stand here, or a value. In a list item it may be both. */
  kind: "key" | "value" | "either" | "none";
  /** The start of the word that is being written. */
  from: number;
}

interface Level {
  /** Column of the key, or of the dash of a list item. */
  column: number;
  step: Step;
}

interface Frame {
  isMap: boolean;
  step: Step | null;
  /** Start of the word that is being written. */
  from: number;
}

const WORD = /[\w.~/${}:*-]*$/;
const KEY = /^("(?:[^"\\]|\\.)*"|'[^']*'|[^\s#:{}[\],"'&*!|>%@`-][^:#{}[\],]*?|-[^\s:#{}[\],][^:#{}[\],]*?)\s*:(?=\s|$)/;

const unquoted = (text: string) => (/^(".*"|'.*')$/.test(text) ? text.slice(1, -1) : text);

/** Finds the place of a position. */
export function placeAt(text: string, position: number): Place {
  const levels: Level[] = [];
  let start = 0;
  while (start <= position) {
    const newline = text.indexOf("\n", start);
    const end = newline < 0 ? text.length : newline;
    const isLast = position <= end;
    const line = text.slice(start, isLast ? position : end);
    const { column, rest } = enter(levels, line, isLast);
    const open = /^[{[]/.exec(rest);
    if (open !== null) {
      const from = start + line.length - rest.length;
      const flow = readFlow(text, from, position);
      if (flow.frames !== null) return inFlow(levels, flow.frames);
      start = nextLine(text, flow.end);
      continue;
    }
    if (isLast) return inBlock(levels, column, line, start);
    start = /^[|>]/.test(rest) ? afterBlockText(text, end, levels.at(-1)?.column ?? 0) : end + 1;
    if (start > position) return { path: path(levels), kind: "none", from: position };
  }
  return { path: path(levels), kind: "key", from: position };
}

/** Reads the dashes and the key of a line, and returns the column of its content and what follows the key. */
function enter(levels: Level[], line: string, isLast: boolean): { column: number; rest: string } {
  let column = line.length - line.trimStart().length;
  let rest = line.slice(column);
  if ((rest === "" && !isLast) || rest.startsWith("#")) return { column, rest: "" };
  let dash = /^-(?:\s+|$)/.exec(rest);
  while (dash !== null) {
    // A list may stand at the column of its key.
    const item = levels.findIndex((level) => level.column > column || (level.column === column && typeof level.step === "number"));
    const before = item >= 0 ? levels[item] : undefined;
    const index = before?.column === column && typeof before.step === "number" ? before.step + 1 : 0;
    if (item >= 0) levels.length = item;
    levels.push({ column, step: index });
    column += dash[0].length;
    rest = rest.slice(dash[0].length);
    dash = /^-(?:\s+|$)/.exec(rest);
  }
  const key = KEY.exec(rest);
  if (rest !== "" || isLast) leave(levels, column);
  if (key === null) return { column, rest };
  levels.push({ column, step: unquoted(key[1]!) });
  return { column, rest: rest.slice(key[0].length).trimStart() };
}

/** Leaves the levels that do not contain the column. */
function leave(levels: Level[], column: number): void {
  while (levels.length > 0) {
    const last = levels.at(-1)!;
    if (last.column < column) return;
    levels.pop();
  }
}

const path = (levels: Level[]) => levels.map(({ step }) => step);

function inBlock(levels: Level[], column: number, line: string, start: number): Place {
  const word = WORD.exec(line)![0];
  const from = start + line.length - word.length;
  const content = line.slice(column);
  if (/(^|\s)#/.test(content)) return { path: path(levels), kind: "none", from };
  const last = levels.at(-1);
  // Behind the key of this line stands its value.
  if (last !== undefined && typeof last.step === "string" && last.column === column && KEY.test(content)) {
    return { path: path(levels), kind: "value", from: start + line.length - /\S*$/.exec(line)![0].length };
  }
  const isItem = last !== undefined && typeof last.step === "number";
  return { path: path(levels), kind: isItem ? "either" : "key", from };
}

/** Reads brackets up to the position. `frames` is null if they end before it. */
function readFlow(text: string, from: number, position: number): { frames: Frame[] | null; end: number } {
  const frames: Frame[] = [];
  let at = from;
  let word = "";
  for (; at < position; at++) {
    const letter = text[at]!;
    const frame = frames.at(-1);
    if (letter === '"' || letter === "'") {
      const close = text.indexOf(letter, at + 1);
      if (close < 0 || close >= position) return { frames, end: position };
      word = text.slice(at + 1, close).replaceAll("${", "");
      at = close;
    } else if (letter === "#" && /\s/.test(text[at - 1] ?? "")) {
      const newline = text.indexOf("\n", at);
      if (newline < 0 || newline >= position) return { frames, end: position };
      at = newline;
    } else if (letter === "{" || letter === "[") {
      // `${NAME}` is a text.
      if (text[at - 1] === "$") {
        word += letter;
        continue;
      }
      frames.push({ isMap: letter === "{", step: letter === "{" ? null : 0, from: at + 1 });
      word = "";
    } else if (letter === "}" || letter === "]") {
      if (word.includes("${")) {
        word = word.replace("${", "");
        continue;
      }
      frames.pop();
      word = "";
      if (frames.length === 0) return { frames: null, end: at + 1 };
      frames.at(-1)!.from = at + 1;
    } else if (letter === "," && frame) {
      frame.step = frame.isMap ? null : Number(frame.step) + 1;
      frame.from = at + 1;
      word = "";
    } else if (letter === ":" && frame && /\s/.test(text[at + 1] ?? " ")) {
      // In a list, `[a: 1]` is a map of one key.
      if (frame.isMap) frame.step = word.trim();
      else frames.push({ isMap: true, step: word.trim(), from: at + 1 });
      frames.at(-1)!.from = at + 1;
      word = "";
    } else {
      word += letter;
    }
  }
  const last = frames.at(-1);
  if (last) last.from = position - /\S*$/.exec(word)![0].length;
  return { frames, end: position };
}

function inFlow(levels: Level[], frames: Frame[]): Place {
  const steps = frames.flatMap(({ step }) => (step === null ? [] : [step]));
  const last = frames.at(-1)!;
  const kind = !last.isMap ? "either" : last.step === null ? "key" : "value";
  return { path: [...path(levels), ...steps], kind, from: last.from };
}

function nextLine(text: string, from: number): number {
  const newline = text.indexOf("\n", from);
  return newline < 0 ? text.length + 1 : newline + 1;
}

/** The start of the first line after a block text, whose lines are indented further than its key. */
function afterBlockText(text: string, end: number, column: number): number {
  let start = end + 1;
  while (start < text.length) {
    const next = nextLine(text, start);
    const line = text.slice(start, next).trimEnd();
    if (line !== "" && line.length - line.trimStart().length <= column) return start;
    start = next;
  }
  return start;
}
