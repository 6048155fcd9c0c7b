import { GitCompare, X } from "lucide-react";
import { useSyncExternalStore } from "react";
import { Link, useLocation } from "wouter";
import { nameOf, pathOf } from "./refs";

// The first of two things to compare. It stays when the page is left, to find the second on another one.
const key = "understudy.compare";
let chosen: string | null = null;
try {
  chosen = sessionStorage.getItem(key);
} catch {
  // Some browsers keep nothing for this page; the choice then ends with it.
}
const watchers = new Set<() => void>();

export function choose(ref: string | null) {
  chosen = ref;
  try {
    ref === null ? sessionStorage.removeItem(key) : sessionStorage.setItem(key, ref);
  } catch {
    // as above
  }
  for (const watch of watchers) watch();
}

export function useChosen(): string | null {
  return useSyncExternalStore(
    (watch) => (watchers.add(watch), () => watchers.delete(watch)),
    () => chosen,
  );
}

/** Chooses a run, checkpoint or thread to be compared; with another already chosen, it compares the two. */
export function CompareButton({ of, role }: { of: string; role?: string }) {
  const [, navigate] = useLocation();
  const first = useChosen();
  const label = first === null ? "Compare with another" : first === of ? "Do not compare" : `Compare with ${nameOf(first)}`;
  const press = () => {
    if (first === null || first === of) return choose(first === null ? of : null);
    choose(null);
    navigate(pathOf(first, of));
  };
  return (
    <button type="button" className={role ? "" : "icon"} role={role} aria-label={role ? undefined : label} title={label} aria-pressed={role ? undefined : first === of} onClick={press}>
      <GitCompare size={14} aria-hidden /> {role && "Compare"}
    </button>
  );
}

/** Says on every page that the first of two is chosen. */
export function Chosen() {
  const first = useChosen();
  if (first === null) return null;
  return (
    <div className="chosen" role="status">
      <GitCompare size={14} aria-hidden />
      <span>
        Compare {nameOf(first)} with another run, checkpoint or thread: press <b>Compare</b> there, or{" "}
        <Link href={pathOf(first)} onClick={() => choose(null)}>
          choose from a list
        </Link>
      </span>
      <button type="button" className="icon" aria-label="Do not compare" onClick={() => choose(null)}>
        <X size={14} />
      </button>
    </div>
  );
}
