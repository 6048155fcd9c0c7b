import type { StreamEvent } from "./events";

/** How long a stream may take to open, in ms: a server may look up who asks, and a browser waits for one of its connections. */
export const patience = 10_000;

/** Time is counted in such pieces, in ms: a page that was busy or asleep counts one, and then reads what has arrived. */
const tick = 250;

/** How often the server of a stream has a heartbeat, in ms; Infinity: it does not say, as versions before. */
export const beatOf = (headers: Headers): number => Number(headers.get("x-understudy-heartbeat")) || Infinity;

/** What who opens a stream reports of it: that something arrived, and, once it is open, how often the server has a heartbeat, in ms. */
export interface Hearing {
  heard: () => void;
  beats: (every: number) => void;
}

/** Opens a stream, which fails as silent says when it takes too long, or when nothing is heard for two and a half heartbeats: a server that hangs keeps its connections. */
export async function untilSilent(opening: (signal: AbortSignal, hearing: Hearing) => Promise<AsyncIterable<StreamEvent>>, signal: AbortSignal, silent: () => Error): Promise<AsyncIterable<StreamEvent>> {
  const stop = new AbortController();
  const leave = () => stop.abort(signal.reason);
  signal.addEventListener("abort", leave, { once: true });
  if (signal.aborted) leave();
  let allowed = patience;
  let passed = 0;
  const timer = setInterval(() => {
    passed += tick;
    if (passed >= allowed) stop.abort(silent());
  }, tick);
  const heard = () => void (passed = 0);
  const beats = (every: number) => {
    allowed = 2.5 * every;
    heard();
  };
  const over = () => {
    clearInterval(timer);
    signal.removeEventListener("abort", leave);
  };
  const failed = (error: unknown) => (stop.signal.aborted ? stop.signal.reason : error) as unknown;
  try {
    return listen(await opening(stop.signal, { heard, beats }));
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
