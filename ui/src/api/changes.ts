import type { QueryClient } from "@tanstack/react-query";
import type { StreamEvent } from "./events";
import { readAgain } from "./read-again";

/** What changed: IDs, or with all so much that it is not named. */
export interface Changed {
  threads?: string[];
  runs?: string[];
  all?: boolean;
}

/** What tabs say to each other. */
export interface Word {
  changed?: Changed;
  live?: boolean;
  down?: boolean; // whether the server does not answer
  ask?: true; // how it is
}

/** What following needs of the browser. */
export interface Tools {
  open: (signal: AbortSignal) => Promise<AsyncIterable<StreamEvent>>;
  /** Calls work when no other tab does it, until the signal. */
  alone: (signal: AbortSignal, work: () => Promise<void>) => Promise<void>;
  /** The words of the other tabs. */
  channel: { post: (word: Word) => void; hear: (on: (word: Word) => void) => void; close: () => void };
  sleep: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** How long to wait where the server has no such route. */
const seldom = 300_000;

/** How long to wait for a server that does not answer: its pages say so, and a person may be starting it. */
const soon = 2_000;

/** What following reports: changes, whether they are reported as they happen, and whether the server does not answer. */
export interface Heard {
  changed: (c: Changed) => void;
  live: (l: boolean) => void;
  down: (d: boolean) => void;
}

/** Follows what changes, by one stream for all tabs of the browser. Returns how to end it. */
export function followChanges(on: Heard, tools: Tools): () => void {
  const stop = new AbortController();
  const { signal } = stop;
  let leads = false;
  let state = { live: false, down: false };
  const hear = ({ changed, ...said }: Word) => {
    const { live = state.live, down = state.down } = said;
    state = { live, down };
    if (said.live !== undefined) on.live(live);
    if (said.down !== undefined) on.down(down);
    if (changed) on.changed(changed);
  };
  const say = (word: Word) => {
    tools.channel.post(word);
    hear(word);
  };
  tools.channel.hear((word) => {
    if (word.ask) leads && tools.channel.post(state);
    else hear(word);
  });
  tools.channel.post({ ask: true });
  void tools.alone(signal, async () => {
    leads = true;
    for (let failures = 0; !signal.aborted; ) {
      let pause = Math.min(1_000 * 2 ** failures++, 30_000);
      let down = state.down;
      try {
        const events = await tools.open(signal);
        say({ live: true, down: false, changed: { all: true } }); // what pages read before does not have what changed since, the first time too
        failures = 0;
        pause = 1_000;
        for await (const event of events) {
          if (event.name === "changes") say({ changed: JSON.parse(event.data) as Changed });
        }
      } catch (error) {
        const { status } = error as { status?: number }; // undefined: the stream broke, and why is known when it is opened again
        if (status !== undefined && status >= 400 && status < 500 && status !== 429) pause = seldom;
        if (status !== undefined) down = status === 0;
        if (down) pause = Math.min(pause, soon);
      }
      if (signal.aborted) return;
      say({ live: false, down });
      await tools.sleep(pause, signal);
    }
  });
  return () => {
    stop.abort();
    tools.channel.close();
  };
}

/** How long reads may take before the next ones replace them, in ms: a server that is slow answers at last, and one that is silent is asked again. */
const patience = 10_000;

/**
 * Reads again what lists and pages show of changes: soon, not more than once a second, and not before the reads of the last changes have ended. A tab
 * that is not seen waits until it is.
 */
export class Refresher {
  private threads = new Set<string>();
  private lists = false;
  private runs = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private last = -Infinity;
  private reads = 0; // how often it has read
  private ended = 0; // the last reads that have ended

  constructor(
    private queries: Pick<QueryClient, "invalidateQueries" | "cancelQueries">,
    private hidden: () => boolean = () => document.hidden,
    private now: () => number = () => performance.now(),
  ) {}

  add({ threads = [], runs = [], all = false }: Changed) {
    for (const t of threads) this.threads.add(t);
    if (all) this.threads.add("");
    this.lists = true;
    this.runs ||= all || runs.length > 0;
    this.plan();
  }

  /** Call it when the tab is seen again. */
  plan() {
    if (!this.lists || this.timer !== undefined || this.hidden()) return;
    const wait = this.ended === this.reads ? 1_000 : patience;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      if (!this.hidden()) this.flush();
    }, Math.max(50, this.last + wait - this.now()));
  }

  stop() {
    this.reads++; // what is being read plans nothing more
    clearTimeout(this.timer);
  }

  private flush() {
    this.last = this.now();
    const keys = [["threads"], ["recent"], ...(this.runs ? [["runs"]] : []), ...(this.threads.has("") ? [["thread"]] : [...this.threads].map((t) => ["thread", t]))];
    this.threads.clear();
    this.lists = this.runs = false;
    const read = ++this.reads;
    void readAgain(this.queries, ...keys).then(() => {
      if (read !== this.reads) return; // others have replaced them
      this.ended = read;
      clearTimeout(this.timer);
      this.timer = undefined;
      this.plan();
    });
  }
}
