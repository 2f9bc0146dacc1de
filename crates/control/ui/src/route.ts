// The view that the address names: `#/flows`, `#/provider/stripe`.
import { Cell } from "./cell";

export interface Route {
  view: string;
  /** What the view shows, if it shows one thing of many. */
  of: string | null;
  /** Parameters after `?`. */
  query: URLSearchParams;
}

function current(): Route {
  const hash = location.hash.startsWith("#token=") ? "" : location.hash;
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", of] = path.split("/");
  return { view: view || "overview", of: of === undefined ? null : decoded(of), query: new URLSearchParams(query) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = new Cell(current());

window.addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#token=")) route.value = current();
});

export const link = (view: string, of?: string) => `#/${view}${of === undefined ? "" : `/${encodeURIComponent(of)}`}`;
