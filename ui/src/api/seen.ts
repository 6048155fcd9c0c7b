/** How long a tab may be hidden before it gives up its streams, in ms: who only looks elsewhere for a moment finds it as it was. */
const patience = 5_000;

/** The part of a document that says whether it is seen. */
export type Sight = Pick<Document, "hidden" | "addEventListener" | "removeEventListener">;

/** Resolves when the tab is seen, or the signal has ended. */
export function whenSeen(signal: AbortSignal, doc: Sight = document): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if (doc.hidden && !signal.aborted) return;
      doc.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    doc.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

/** A signal that ends with another one, or once the tab has been hidden for a while; done stops watching. Browsers share six connections among the tabs of a server. */
export function whileSeen(signal: AbortSignal, doc: Sight = document): { signal: AbortSignal; done: () => void } {
  const ends = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = () => {
    clearTimeout(timer);
    timer = doc.hidden ? setTimeout(end, patience) : undefined;
  };
  const end = () => ends.abort();
  doc.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", end);
  if (signal.aborted) end();
  look();
  return {
    signal: ends.signal,
    done: () => {
      clearTimeout(timer);
      doc.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", end);
    },
  };
}

/**
 * Does work when the tab is seen, with a signal that also ends once it has been hidden for a while. Resolves to whether that was the end: then the work is to be done
 * again. What follows a stream for a page does it in this way.
 */
export async function inSight(signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>, doc: Sight = document): Promise<boolean> {
  await whenSeen(signal, doc);
  const seen = whileSeen(signal, doc);
  try {
    if (!signal.aborted) await work(seen.signal);
  } catch (error) {
    if (!seen.signal.aborted) throw error;
  } finally {
    seen.done();
  }
  return seen.signal.aborted && !signal.aborted;
}
