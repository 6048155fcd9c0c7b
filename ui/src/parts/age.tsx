import { useSyncExternalStore } from "react";
import { age, exact } from "./format";

/** How often ages are drawn again, in ms: the smallest that they show is a minute. */
const every = 20_000;

let now = Date.now();
const drawn = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** One clock for all ages of a page, which runs while there are some. */
function watch(draw: () => void): () => void {
  drawn.add(draw);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const one of drawn) one();
  }, every);
  return () => {
    drawn.delete(draw);
    if (drawn.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** How long ago a time was. Exact times are shown on hover, and are what is copied (copied-times.ts). */
export function Age({ of }: { of: string }) {
  useSyncExternalStore(watch, () => now);
  return (
    <time dateTime={of} title={exact(of)}>
      {age(of)}
    </time>
  );
}
