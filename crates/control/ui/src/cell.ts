// Values that components watch.
import { useEffect, useState } from "preact/hooks";

export class Cell<T> {
  private readonly watchers = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set value(next: T) {
    this.current = next;
    for (const watcher of [...this.watchers]) watcher();
  }

  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

/** Returns the value of the cell, and draws the component again when it changes. */
export function useCell<T>(cell: Cell<T>): T {
  const [, draw] = useState(0);
  useEffect(() => cell.watch(() => draw((count) => count + 1)), [cell]);
  return cell.value;
}

/** A choice that outlives the tab. */
export function useKept(name: string, initial: string): [string, (value: string) => void] {
  const key = `egret-${name}`;
  const [value, set] = useState(() => localStorage.getItem(key) ?? initial);
  return [value, (next) => (localStorage.setItem(key, next), set(next))];
}
