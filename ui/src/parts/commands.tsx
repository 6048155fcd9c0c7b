import { useEffect, useId, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { titleOf, useThreads } from "../threads/threads";
import { Dialog } from "./dialog";

interface Command {
  name: string;
  kind: string;
  run: () => void;
}

/** How many are shown; the more is typed, the fewer are left. */
const most = 12;

/** The buttons of the page's head, under the names that they have for those who do not see them. */
function ofPage(): Command[] {
  const buttons = [...document.querySelectorAll<HTMLElement>("main header.bar :is(button, a.button)")];
  return buttons
    .filter((b) => !b.hasAttribute("disabled") && b.checkVisibility())
    .map((b) => ({ name: (b.getAttribute("aria-label") ?? b.textContent ?? "").trim(), kind: "this page", run: () => b.click() }))
    .filter((c) => c.name !== "");
}

/** Whether all words of a text are in a name, in any order. */
export function fits(name: string, words: string): boolean {
  const at = name.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => at.includes(word));
}

/** What can be done from anywhere, found by its name: pages, the threads that are loaded, and what the page offers. */
export function Commands({ pages, onClose }: { pages: readonly (readonly [string, string])[]; onClose: () => void }) {
  const [, navigate] = useLocation();
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const [own] = useState(ofPage);
  const list = useId();
  const threads = useThreads().data;
  const all = useMemo<Command[]>(
    () => [
      ...own,
      { name: "New thread", kind: "page", run: () => navigate("/") },
      ...pages.map(([href, label]) => ({ name: label, kind: "page", run: () => navigate(href) })),
      ...(threads?.pages.flat() ?? []).map((t) => ({ name: titleOf(t), kind: "thread", run: () => navigate(`/t/${t.thread_id}`) })),
    ],
    [navigate, own, pages, threads],
  );
  const found = all.filter((c) => fits(`${c.name} ${c.kind}`, words.trim())).slice(0, most);
  const chosen = Math.min(at, found.length - 1);
  const marked = useRef<HTMLLIElement>(null);
  useEffect(() => {
    marked.current?.scrollIntoView({ block: "nearest" }); // newer browsers return a promise
  }, [chosen]);
  const run = (c: Command | undefined) => {
    if (!c) return;
    onClose();
    requestAnimationFrame(c.run); // when the focus is where it was
  };
  return (
    <Dialog title="Commands" onClose={onClose}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={found.length > 0 ? `${list}-${chosen}` : undefined}
        aria-label="Command"
        placeholder="A page, a thread, or what this page can do"
        autoFocus
        value={words}
        onChange={(e) => (setWords(e.target.value), setAt(0))}
        onKeyDown={(e) => {
          if (e.nativeEvent.isComposing) return; // Enter chooses what an input method proposes
          const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
          if (step) {
            e.preventDefault();
            if (found.length > 0) setAt((chosen + step + found.length) % found.length);
          } else if (e.key === "Enter") {
            e.preventDefault();
            run(found[chosen]);
          }
        }}
      />
      <ul className="commands" role="listbox" aria-label="Commands" id={list}>
        {found.map((c, i) => (
          <li key={i} id={`${list}-${i}`} ref={i === chosen ? marked : undefined} role="option" aria-selected={i === chosen} onClick={() => run(c)}>
            <span>{c.name}</span>
            <span className="quiet">{c.kind}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p className="quiet">Nothing has these words.</p>}
    </Dialog>
  );
}
