import type { StreamEvent } from "./events";

/** How long a stream with a heartbeat every second may be silent, in ms. */
export const patience = 2_500;

/** By how much a timer may be late before it says more of the page, which was busy or asleep, than of the server. */
const late = 1_000;

/**
 * Opens a stream, which fails as silent says when nothing is heard for too long, before it opens or later: a server that hangs keeps its connections. opening calls heard for
 * whatever arrives.
 */
export async function untilSilent(opening: (signal: AbortSignal, heard: () => void) => Promise<AsyncIterable<StreamEvent>>, signal: AbortSignal, silent: () => Error): Promise<AsyncIterable<StreamEvent>> {
  const stop = new AbortController();
  const leave = () => stop.abort(signal.reason);
  signal.addEventListener("abort", leave, { once: true });
  let timer: ReturnType<typeof setTimeout>;
  const heard = () => {
    clearTimeout(timer);
    const due = performance.now() + patience;
    timer = setTimeout(() => (performance.now() > due + late ? heard() : stop.abort(silent())), patience);
  };
  const over = () => {
    clearTimeout(timer);
    signal.removeEventListener("abort", leave);
  };
  const failed = (error: unknown) => (stop.signal.aborted ? stop.signal.reason : error) as unknown;
  heard();
  try {
    return listen(await opening(stop.signal, heard));
  } catch (error) {
    over();
    throw failed(error);
  }

  async function* listen(events: AsyncIterable<StreamEvent>) {
    try {
      yield* events;
    } catch (error) {
      throw failed(error);
    } finally {
      over();
    }
  }
}
