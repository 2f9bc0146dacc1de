// Ctrl+K: goes to a view, to a provider or to its calls, by a part of the name.
import { useEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { label, shownName } from "../figures";
import { live } from "../live";
import { link } from "../route";

const SHOWN_MAX = 10;

interface Place {
  name: string;
  kind: string;
  href: string;
}

/** The views, and what each provider has, by name. */
function usePlaces(views: [string, string][], traffic: boolean): Place[] {
  const names = [...new Set(useCell(live).moments?.now.stats.providers.map(label) ?? [])];
  return [
    ...views.map(([view, name]) => ({ name, kind: "view", href: link(view) })),
    ...names.map((of) => ({ name: shownName(of), kind: "provider", href: link("provider", of) })),
    ...names.filter(() => traffic).map((of) => ({ name: shownName(of), kind: "calls", href: `${link("traffic")}?provider=${encodeURIComponent(of)}` })),
  ];
}

export function Jump({ views, traffic }: { views: [string, string][]; traffic: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [word, setWord] = useState("");
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      // The editor has keys of its own.
      const isOther = event.key !== "k" || !(event.ctrlKey || event.metaKey) || (event.target as HTMLElement).closest(".cm-editor") !== null;
      if (isOther || dialog.current?.open !== false) return;
      event.preventDefault();
      setWord("");
      dialog.current.showModal();
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, []);
  const wanted = word.trim().toLowerCase();
  const found = usePlaces(views, traffic).filter(({ name }) => name.toLowerCase().includes(wanted)).slice(0, SHOWN_MAX);
  const close = () => dialog.current?.close();
  return (
    <dialog ref={dialog} class="jump" aria-label="Go to">
      <form
        method="dialog"
        onSubmit={() => {
          if (found[0]) location.hash = found[0].href;
        }}
      >
        <input type="text" aria-label="Name of a view or provider" placeholder="Go to a view or provider" value={word} autofocus onInput={(event) => setWord(event.currentTarget.value)} />
      </form>
      <ul>
        {found.map(({ name, kind, href }) => (
          <li key={href}>
            <a href={href} onClick={close}>
              {name} <small>{kind}</small>
            </a>
          </li>
        ))}
        {found.length === 0 && <li class="note">Nothing has this name.</li>}
      </ul>
    </dialog>
  );
}
