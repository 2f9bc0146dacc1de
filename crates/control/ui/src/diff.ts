// The difference of two texts, line by line.

export interface DiffLine {
  kind: "same" | "added" | "removed" | "gap";
  /** Number of the line in the old and in the new text. */
  old: number | null;
  now: number | null;
  text: string;
}

const CONTEXT = 3;
/** Bound of the table of the longest common subsequence; larger differences are shown as a whole. */
const CELLS_MAX = 4_000_000;

function lines(text: string): string[] {
  const all = text.split("\n");
  if (all.at(-1) === "") all.pop();
  return all;
}

/** Returns the changed lines with some around them. */
export function diff(before: string, after: string): DiffLine[] {
  const [a, b] = [lines(before), lines(after)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (old: number, now: number): DiffLine => ({ kind: "same", old, now, text: a[old - 1]! });
  const all: DiffLine[] = [];
  for (let line = 1; line <= start; line++) all.push(same(line, line));
  all.push(...changed(a.slice(start, a.length - end), b.slice(start, b.length - end), start));
  for (let left = end; left > 0; left--) all.push(same(a.length - left + 1, b.length - left + 1));
  return withGaps(all);
}

function changed(a: string[], b: string[], offset: number): DiffLine[] {
  const removed = (index: number): DiffLine => ({ kind: "removed", old: offset + index + 1, now: null, text: a[index]! });
  const added = (index: number): DiffLine => ({ kind: "added", old: null, now: offset + index + 1, text: b[index]! });
  if (a.length * b.length > CELLS_MAX) return [...a.map((_, index) => removed(index)), ...b.map((_, index) => added(index))];
  // Lengths of the longest common subsequences of the rests.
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1]! + 1 : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
    }
  }
  const all: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      all.push({ kind: "same", old: offset + i + 1, now: offset + j + 1, text: a[i]! });
      i++;
      j++;
    } else if (j >= b.length || (i < a.length && common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) {
      all.push(removed(i++));
    } else {
      all.push(added(j++));
    }
  }
  return all;
}

/** Leaves out lines that are far from any change. */
function withGaps(all: DiffLine[]): DiffLine[] {
  const near = all.map(() => false);
  all.forEach(({ kind }, index) => {
    if (kind === "same") return;
    for (let at = Math.max(0, index - CONTEXT); at <= Math.min(all.length - 1, index + CONTEXT); at++) near[at] = true;
  });
  const shown: DiffLine[] = [];
  all.forEach((line, index) => {
    if (near[index]) shown.push(line);
    else if (shown.at(-1)?.kind !== "gap") shown.push({ kind: "gap", old: null, now: null, text: "" });
  });
  return shown.every(({ kind }) => kind === "gap") ? [] : shown;
}
